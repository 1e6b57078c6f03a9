// Package page looks at the page of "ovnkube egress serve" with a browser, on a cluster
// whose node fails, and while the API server or the master do not run; and at the page that
// a master serves to those who may see it.
//
// "make page-test" runs it: it needs root, and Chromium without a display, which that
// installs. It is a module of its own so that the other tests need neither Chromium nor what
// drives it.
package page
