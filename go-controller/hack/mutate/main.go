// Command mutate checks that the tests detect defects. It applies each stored mutation, a small patch that breaks
// product code, on its own, runs the tests that should then fail, and prints a table of what was killed and what
// survived. The working tree is not modified: the compiler is given patched copies of the files instead.
//
//	mutate         a small sample
//	mutate all     every mutation
//	mutate REGEXP  mutations whose names match
//
// It runs in the directory of the module.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"
)

const mutations = "hack/mutate/mutations"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "usage: mutate [all|REGEXP]") }
	flag.Parse()
	if flag.NArg() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	which := cmp.Or(flag.Arg(0), "sample")
	if err := run(ctx, which); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, which string) error {
	all, err := read(mutations)
	if err != nil {
		return err
	}
	chosen, err := choose(all, which)
	if err != nil {
		return err
	}
	start := time.Now()
	var results []result
	for i, m := range chosen {
		r := try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Printf("mutate: %d/%d %s: %s (%s)\n", i+1, len(chosen), m.name, r, r.took.Round(100*time.Millisecond))
		if r.outcome != killed {
			fmt.Println(tail(r.output, 40))
		}
		results = append(results, r)
	}
	return report(results, time.Since(start))
}

// choose returns the requested mutations.
func choose(all []mutation, which string) ([]mutation, error) {
	wanted := func(m mutation) bool { return true }
	switch which {
	case "all":
	case "sample":
		wanted = func(m mutation) bool { return m.sample }
	default:
		pattern, err := regexp.Compile(which)
		if err != nil {
			return nil, err
		}
		wanted = func(m mutation) bool { return pattern.MatchString(m.name) }
	}
	var chosen []mutation
	for _, m := range all {
		if wanted(m) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutation for %q", which)
	}
	return chosen, nil
}

// report prints the table and returns an error if a mutation was not killed.
func report(results []result, took time.Duration) error {
	count := map[outcome]int{}
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range results {
		count[r.outcome]++
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.outcome, r.name, r.breaks)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("\n%d killed, %d survived, %d wrong, in %s\n", count[killed], count[survived], count[wrong], took.Round(time.Second))
	if count[killed] != len(results) {
		return fmt.Errorf("%d of %d mutations are not killed", len(results)-count[killed], len(results))
	}
	return nil
}

// tail returns the last lines of text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
