package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// steps shows what is going on: on a terminal one line a step, rewritten as it
// goes; elsewhere a line when a step begins to take long and one at its end.
type steps struct {
	out      *os.File
	terminal bool
}

func newSteps(out *os.File) steps {
	// Not every character device is one: /dev/null and serial lines to a log are not.
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return steps{out: out, terminal: err == nil}
}

// sign is how often a step that takes long gives one where lines stay.
const sign = 15 * time.Second

// Step runs one step.
func (s steps) Step(title string, run func(update func(note string)) error) error {
	began := time.Now()
	var mu sync.Mutex
	note, shown := "", began
	show := func(mark string) {
		extra := ""
		if note != "" {
			extra = " (" + note + ")"
		}
		elapsed := ""
		if d := time.Since(began); mark != "•" && d > 100*time.Millisecond {
			elapsed = fmt.Sprintf(" %.1f s", d.Seconds())
		}
		if s.terminal {
			fmt.Fprintf(s.out, "\r\x1b[K %s %s%s%s", mark, title, elapsed, extra)
		} else {
			fmt.Fprintf(s.out, " %s %s%s%s\n", mark, title, elapsed, extra)
		}
	}
	if s.terminal {
		show("•")
	}
	err := run(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		note = text
		if s.terminal && time.Since(shown) > 100*time.Millisecond || time.Since(shown) > sign {
			shown = time.Now()
			show("•")
		}
	})
	mu.Lock()
	defer mu.Unlock()
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	if note != "already built" && note != "none" {
		note = ""
	}
	show(mark)
	if s.terminal {
		fmt.Fprintln(s.out)
	}
	return err
}
