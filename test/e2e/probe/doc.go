// Command probe is both ends of the traffic that the end-to-end tests send: it runs in pods, on
// nodes and on hosts outside the cluster.
//
//	probe serve  -port 8080            answer /clientip, /hostname and /who, and /who by UDP; echo on port+1
//	probe get    URL                   print the body, or fail
//	probe watch  URL                   get it repeatedly, and print when there was an answer
//	probe ask    ADDR:PORT             print the answer by UDP, or fail
//	probe api    -host NAME            query the API server as a pod does; print the address that answered
//	probe stream -to ADDR:PORT         keep one connection busy and count what is lost
//	probe traffic -to ADDR:PORT,...   keep connections busy, open new ones, and count what is lost
//	probe send   -to ADDR:PORT,...     send datagrams continuously
//	probe pulse  -to ADDR:PORT,...     query by UDP continuously and report how long there was no answer
//	probe solicit ADDR...              continuously ask the wire who has the addresses
//	probe forge  ADDR:PORT...          send a packet with a foreign source to each, for a capture to see
//	probe stray  ADDR:PORT...          send packets to each that belong to no connection
//	probe flood  -to ADDR:PORT         send datagrams as fast as possible and print how many
//
// It is small and statically linked, so that the image consists of this one file.
package main
