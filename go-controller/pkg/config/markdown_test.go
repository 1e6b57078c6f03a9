package config

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// reference is the generated document, as seen from this package.
const reference = "../../../docs/configuration.md"

func TestReferenceIsUpToDate(t *testing.T) {
	var want bytes.Buffer
	if err := Markdown(&want); err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Errorf("docs/configuration.md is stale: in go-controller, run go run ./hack/configdocs ../docs/configuration.md")
	}
}

func TestReferenceNamesEveryOptionOnce(t *testing.T) {
	var b bytes.Buffer
	if err := Markdown(&b); err != nil {
		t.Fatal(err)
	}
	for _, o := range Options {
		row := o.row()
		if n := strings.Count(b.String(), row); n != 1 {
			t.Errorf("%s is in the reference %d times", o.Name(), n)
		}
		if cells := strings.Count(strings.ReplaceAll(row, `\|`, ""), "|"); cells != 4 {
			t.Errorf("%s has %d cell borders: %s", o.Name(), cells, row)
		}
	}
}
