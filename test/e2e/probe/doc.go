// Command probe is both ends of the traffic that the end-to-end tests send: it
// runs in pods, on nodes and on hosts outside the cluster.
//
//	probe serve  -port 8080            answer /clientip, /hostname and /who, by UDP as /who does; echo on port+1
//	probe get    URL                   print the body, or fail
//	probe ask    ADDR:PORT             print the answer by UDP, or fail
//	probe stream -to ADDR:PORT         keep one connection busy and count what is lost
//
// It is static and small, so that the image is this one file.
package main
