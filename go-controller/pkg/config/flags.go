package config

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// text holds the value of one flag on the command line. Load parses it, so that all sources
// have the same messages.
type text struct {
	given   bool
	boolean bool
	value   string
}

func (t *text) Set(s string) error { t.given, t.value = true, s; return nil }
func (t *text) String() string     { return t.value }

// IsBoolFlag reports whether a flag may be given without a value.
func (t *text) IsBoolFlag() bool { return t.boolean }

// flag is a cli flag that shows no placeholder if it needs no value.
type flag struct {
	*cli.GenericFlag
	takesValue bool
}

func (f flag) TakesValue() bool { return f.takesValue }

// String is what --help prints.
func (f flag) String() string { return cli.FlagStringer(f) }

// Flags returns a flag for every option that has one, for cli.App.Flags, and a function
// that returns the given flags after the command line is parsed, for Sources.Flags.
func Flags() (flags []cli.Flag, parsed func() map[string]string) {
	texts := map[string]*text{}
	add := func(name, category, usage, value string, boolean, hidden bool) {
		t := &text{boolean: boolean}
		texts[name] = t
		flags = append(flags, flag{takesValue: !boolean, GenericFlag: &cli.GenericFlag{
			Name: name, Category: category, Usage: usage, DefaultText: value, Value: t, Hidden: hidden,
		}})
	}
	for _, o := range Options {
		if o.Flag == "" {
			continue
		}
		add(o.Flag, o.Section, o.help(), o.Default, o.Boolean(), false)
		if o.OldFlag != "" {
			add(o.OldFlag, o.Section, "Deprecated name of "+o.Name(), "", o.Boolean(), true)
		}
		if o.OldSwitch != "" {
			add(o.OldSwitch, o.Section, fmt.Sprintf("Deprecated, means %s=%s", o.Name(), o.OldValue), "", true, true)
		}
	}
	return flags, func() map[string]string {
		out := map[string]string{}
		for name, t := range texts {
			if t.given {
				out[name] = t.value
			}
		}
		return out
	}
}

// help is the line that --help prints.
func (o *Option) help() string {
	var b strings.Builder
	b.WriteString(o.Usage)
	if !o.Boolean() {
		b.WriteString("; " + o.Allowed())
	}
	if o.Env != "" {
		b.WriteString(" [$" + o.Env + "]")
	}
	if o.NoEffect != "" {
		b.WriteString(" (accepted without effect: " + o.NoEffect + ")")
	}
	return b.String()
}
