package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/gcfg/v2"
)

// File is a configuration file.
type File struct {
	// Name is its name in error messages.
	Name string
	// Data is its content, in the format of Git's configuration files.
	Data []byte
}

// parse returns the values in the file by option. If a key is given twice, the last value
// counts; the current key takes precedence over a deprecated one.
func (f File) parse() (map[*Option]given, error) {
	if !utf8.Valid(f.Data) {
		return nil, fmt.Errorf("%s: not a text file in UTF-8; allowed: [section] and key=value lines", f.Name)
	}
	out, old := map[*Option]given{}, map[*Option]given{}
	err := gcfg.ReadWithCallback(bytes.NewReader(bytes.TrimPrefix(f.Data, []byte("\ufeff"))), func(section, sub, key, text string, blank bool) error {
		section, key = strings.ToLower(section), strings.ToLower(key)
		if sub != "" || !slices.Contains(Sections(), section) {
			return &Error{Where: f.Name + ":" + section, Value: sub, Problem: "unknown section",
				Allowed: strings.Join(Sections(), ", ")}
		}
		if key == "" {
			return nil // the section's header
		}
		where := f.Name + ":" + section + ":" + key
		o, deprecated := optionAt(section, key)
		if o == nil {
			return &Error{Where: where, Value: text, Problem: "unknown key",
				Allowed: strings.Join(keys(section), ", ")}
		}
		if blank && o.Boolean() {
			text = "true"
		}
		if deprecated {
			old[o] = given{where, text}
		} else {
			out[o] = given{where, text}
		}
		return nil
	})
	if refused := (*Error)(nil); errors.As(err, &refused) {
		return nil, refused
	}
	if err != nil {
		// The parser's text starts with line:column and may have a second line.
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, fmt.Errorf("%s:%s; allowed: [section] and key=value lines", f.Name, line)
	}
	for o, g := range old {
		if _, ok := out[o]; !ok {
			out[o] = g
		}
	}
	return out, nil
}

// Sections returns the names of the sections in order.
func Sections() []string {
	var out []string
	for _, o := range Options {
		if o.Section != "" && !slices.Contains(out, o.Section) {
			out = append(out, o.Section)
		}
	}
	return out
}

// keys returns the names of a section's keys in order.
func keys(section string) []string {
	var out []string
	for _, o := range Options {
		if o.Section == section {
			out = append(out, o.Key)
		}
	}
	return out
}

// optionAt finds an option by its section and key in a file, and reports whether they are
// deprecated.
func optionAt(section, key string) (o *Option, deprecated bool) {
	for _, o := range Options {
		switch {
		case o.Section == section && o.Key == key:
			return o, false
		case o.OldKey != "" && o.OldSection == section && o.OldKey == key:
			return o, true
		}
	}
	return nil, false
}
