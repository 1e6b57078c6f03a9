package cli

import (
	"os"
	"testing"
)

func TestOnlyTerminalsAreRewritten(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if newSteps(null).terminal {
		t.Error("/dev/null is taken for a terminal")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if !newSteps(terminal).terminal {
		t.Error("a terminal is not taken for one")
	}
}
