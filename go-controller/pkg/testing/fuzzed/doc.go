// Package fuzzed makes clusters out of the bytes of a fuzzer and checks what is
// planned for them. Names and addresses are taken from small pools, so that objects
// collide; among them are values that only a mistake, or malice, would write.
//
// Callers: the fuzz tests of the planners.
package fuzzed
