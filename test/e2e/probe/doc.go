// Command probe is both ends of the traffic that the end-to-end tests send: it
// runs in pods, on nodes and on hosts outside the cluster.
//
//	probe serve  -port 8080            answer /clientip, /hostname and /who, by UDP as /who does; echo on port+1
//	probe get    URL                   print the body, or fail
//	probe watch  URL                   get it again and again, and print when there was an answer
//	probe ask    ADDR:PORT             print the answer by UDP, or fail
//	probe api    -host NAME            ask the API server as a pod does; print the address that answered
//	probe stream -to ADDR:PORT         keep one connection busy and count what is lost
//	probe traffic -to ADDR:PORT,...   keep connections busy, open new ones, and count what is lost
//	probe send   -to ADDR:PORT,...     send datagrams for ever
//	probe pulse  -to ADDR:PORT,...     ask by UDP for ever and tell how long there was no answer
//	probe solicit ADDR...              ask the wire for ever who has the addresses
//
// It is static and small, so that the image is this one file.
package main
