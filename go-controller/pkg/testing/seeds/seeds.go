// Package seeds runs random tests with fresh seeds that can be repeated.
//
//	SEEDS=5000 go test ./pkg/x -run Random    # many of them
//	SEED=1234 go test ./pkg/x -run Random     # the one that failed
//
// Imported by tests only.
package seeds

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Each runs test as n subtests, each with random numbers from its own seed, which is the subtest's name. The
// environment variable SEEDS overrides n; SEED runs just that seed.
func Each(t *testing.T, n int, test func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	if seed, ok := number(t, "SEED"); ok {
		run(t, seed, test)
		return
	}
	if many, ok := number(t, "SEEDS"); ok {
		n = int(many)
	}
	for range n {
		run(t, uint64(rand.Uint32()), test)
	}
}

func run(t *testing.T, seed uint64, test func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	t.Run(fmt.Sprintf("SEED=%d", seed), func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, 0))) })
}

func number(t *testing.T, name string) (uint64, bool) {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n, true
}
