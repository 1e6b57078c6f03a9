// Package plane runs the real control plane that a master works with: etcd, the API server, the two
// databases of OVN and northd, in a network namespace of their own, with all files in one
// directory. It also runs masters, as processes whose CPU time and memory are read
// from the kernel.
package plane
