package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestEnded: waiting for a process that has ended by itself fails at once, with the reason.
func TestEnded(t *testing.T) {
	p, err := start(t.TempDir(), "server", "sh", "-c", "echo began; echo the disk is full; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.ready(t.Context(), func() error { return errors.New("it does not answer") })
	if !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "the disk is full") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("ended: %v", err)
	}
}

func TestUntil(t *testing.T) {
	tries := 0
	err := Until(t.Context(), "three tries", func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	last := errors.New("never")
	if err := Until(ctx, "nothing", func() error { return last }); !errors.Is(err, last) || !errors.Is(err, context.Canceled) {
		t.Errorf("waited for nothing: %v", err)
	}
}

// TestUse: resource usage of a process is read from the kernel.
func TestUse(t *testing.T) {
	p, err := start(t.TempDir(), "busy", "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	p.ResetPeak()
	err = Until(t.Context(), "a busy process", func() error {
		if p.CPU() < 10*time.Millisecond {
			return errors.New("it does nothing")
		}
		return nil
	})
	if now, peak := p.Memory(); err != nil || now == 0 || peak < now {
		t.Errorf("memory %d, at most %d: %v", now, peak, err)
	}
}

// TestTried: a process counts its own lines, each of them once, whatever an earlier process has written to the same log.
func TestTried(t *testing.T) {
	const line = `echo "x.go:1] \"All start-up keys tried\" controller=\"pod\""`
	dir := t.TempDir()
	for _, lines := range []int{1, 3} {
		p, err := start(dir, "ovnkube", "sh", "-c", strings.Repeat(line+"; ", lines)+"printf 'All start-up'; exec sleep 60")
		if err != nil {
			t.Fatal(err)
		}
		err = Until(t.Context(), "the lines", func() error {
			n, err := p.Tried()
			if err == nil && n != lines {
				err = fmt.Errorf("%d lines, want %d", n, lines)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		p.Kill()
	}
}
