// Package fuzzed makes clusters out of a fuzzer's bytes and checks what is planned for them. Names and addresses
// are taken from small pools, so that objects collide; some values would only be written by mistake or with
// malicious intent.
//
// Callers: the fuzz tests of the planners.
package fuzzed
