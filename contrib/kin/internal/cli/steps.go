package cli

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// steps shows progress: on a terminal one line per step, which is rewritten
// while it runs; elsewhere a line whenever a step takes long, and one at its end.
type steps struct {
	out      *os.File
	terminal bool
}

func newSteps(out *os.File) steps {
	// Not every character device is a terminal: /dev/null is not, for example.
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return steps{out: out, terminal: err == nil}
}

// sign is the interval at which a step that takes long prints a line if out is no terminal.
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
