package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Problem is a line that cannot be used.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// String formats the problem as compilers do.
func (p Problem) String() string { return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message) }

// Read reads records, one per line, and reports the lines that are not valid records. A last line without a line
// end is not reported: it is still being written, or the master was killed while writing it.
func Read(from io.Reader, file string) (records []Record, problems []Problem, err error) {
	in := bufio.NewReader(from)
	for line := 1; ; line++ {
		text, err := in.ReadBytes('\n')
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, nil, fmt.Errorf("read %s: %w", file, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			var r Record
			bad := json.Unmarshal(text, &r)
			torn := bad != nil && last
			if bad == nil {
				bad = r.validate()
			}
			switch {
			case bad == nil:
				records = append(records, r)
			case !torn:
				problems = append(problems, Problem{file, line, bad.Error()})
			}
		}
		if last {
			return records, problems, nil
		}
	}
}
