// Package generated is the root of the clientset, listers and informers of our
// API groups. Everything below it is written by hack/update-codegen.sh and
// never edited. Callers: the glue packages and pkg/app.
package generated
