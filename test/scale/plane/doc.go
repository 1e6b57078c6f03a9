// Package plane runs what a master works with, for real: etcd, the API server, the two
// databases of OVN and northd, in a network namespace of their own, with all files in one
// directory. And it runs masters, as processes whose use of processors and memory is read
// from the kernel.
package plane
