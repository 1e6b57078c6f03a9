package config

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// Sources are the sources of settings, in order of precedence.
type Sources struct {
	// Flags holds the values on the command line, by the name of the flag without dashes;
	// see Flags.
	Flags map[string]string
	// File is the configuration file; nil if there is none.
	File *File
	// LookupEnv reads the environment; nil reads nothing.
	LookupEnv func(name string) (string, bool)
	// ExternalIDs reads the external_ids of Open vSwitch. It is called at most once, and
	// only if a setting that they may contain has no other source. Nil reads nothing; an
	// error becomes a Notice, or ErrExternalIDs.
	ExternalIDs func() (map[string]string, error)
	// ReadFile is called for configured files that must be usable at startup:
	// certificates and keys. Nil checks none.
	ReadFile func(path string) ([]byte, error)
	// WithoutNorthbound is true if the process does not use the northbound database: its
	// key and certificates may be missing.
	WithoutNorthbound bool
	// WithoutSouthbound is the same for the southbound database.
	WithoutSouthbound bool
	// WithoutPage is the same for the egress page, which only masters serve.
	WithoutPage bool
	// WithoutKubernetes is the same for the API server.
	WithoutKubernetes bool
}

// ErrExternalIDs is the error of Load if the external_ids of Open vSwitch could not be read and the
// node would therefore replace the setting in them by its default.
var ErrExternalIDs = errors.New("external_ids of Open vSwitch cannot be read")

// given is a value as text, and where it came from.
type given struct{ where, text string }

// loader is one run of Load.
type loader struct {
	sources Sources
	file    map[*Option]given
	ids     func() map[string]string
	unread  error // why ids failed
	config  Config
	from    map[*Option]given
	notices []Notice
}

// Load reads every option from the source with the highest precedence that has it, parses
// it and validates the whole configuration. The error, if any, is about the first option in
// the order of the table, fits on one line and has the setting, its value and what is
// allowed. Notices list settings that were accepted without effect.
func Load(s Sources) (Config, []Notice, error) {
	l := &loader{sources: s, from: map[*Option]given{}}
	l.ids = sync.OnceValue(l.readExternalIDs)
	if s.File != nil {
		var err error
		if l.file, err = s.File.parse(); err != nil {
			return Config{}, nil, err
		}
	}
	for _, o := range Options {
		if err := l.set(o); err != nil {
			return Config{}, nil, err
		}
	}
	if err := l.validate(); err != nil {
		return Config{}, nil, err
	}
	if err := l.checkWrittenBack(); err != nil {
		return Config{}, nil, err
	}
	return l.config, l.notices, nil
}

// checkWrittenBack refuses the default of a setting that a node writes to the external_ids if they
// could not be read: it would replace the one that is there. See OVNControllerIDs.
func (l *loader) checkWrittenBack() error {
	if !l.southboundUnread() {
		return nil
	}
	return fmt.Errorf("%w: %w; %s, which may be there, has no other source", ErrExternalIDs, l.unread, l.option(&l.config.OVNSouth.Endpoints).Name())
}

// southboundUnread reports whether the address of the southbound database may be in the external_ids, which could not be read.
func (l *loader) southboundUnread() bool {
	o := l.option(&l.config.OVNSouth.Endpoints)
	return l.unread != nil && !l.sources.WithoutSouthbound && l.from[o] == o.byDefault()
}

// readExternalIDs queries Open vSwitch. A failure is not an error by itself, as every setting in
// external_ids has other sources.
func (l *loader) readExternalIDs() map[string]string {
	if l.sources.ExternalIDs == nil {
		return nil
	}
	ids, err := l.sources.ExternalIDs()
	if l.unread = err; err != nil {
		l.notices = append(l.notices, Notice{Where: "external_ids of Open vSwitch", Reason: "not read: " + err.Error()})
	}
	return ids
}

// set fills the field of one option.
func (l *loader) set(o *Option) error {
	g, explicit := l.pick(o)
	l.from[o] = g
	l.noticeOverride(o, g)
	if g.text == "" && o.Default == "" {
		return nil
	}
	if !o.value.set(&l.config, g.text) {
		return &Error{Where: g.where, Value: g.text, Allowed: o.Allowed()}
	}
	if explicit && o.NoEffect != "" && !o.same(g.text, o.Default) {
		l.notices = append(l.notices, Notice{Where: g.where, Value: g.text, Reason: o.NoEffect})
	}
	return nil
}

// pick returns the value with the highest precedence, and whether the user set it.
func (l *loader) pick(o *Option) (given, bool) {
	for _, flag := range []string{o.Flag, o.OldFlag} {
		if text, ok := l.sources.Flags[flag]; ok && flag != "" {
			return given{"--" + flag, text}, true
		}
	}
	if text, ok := l.sources.Flags[o.OldSwitch]; ok && o.OldSwitch != "" {
		if yes, ok := boolean().parse(text); !ok {
			return given{"--" + o.OldSwitch, text}, true
		} else if yes {
			return given{"--" + o.OldSwitch, o.OldValue}, true
		}
	}
	if g, ok := l.file[o]; ok {
		return g, true
	}
	if o.Env != "" && l.sources.LookupEnv != nil {
		if text, ok := l.sources.LookupEnv(o.Env); ok && text != "" {
			return given{"environment variable " + o.Env, text}, true
		}
	}
	if o.ExternalID != "" {
		if text := l.ids()[o.ExternalID]; text != "" {
			return given{"external_ids:" + o.ExternalID, text}, true
		}
	}
	return o.byDefault(), false
}

// byDefault is the value of an option that has no source.
func (o *Option) byDefault() given { return given{"default of " + o.Name(), o.Default} }

// noticeOverride reports that the file has another value than the flag that is used.
func (l *loader) noticeOverride(o *Option, used given) {
	file, ok := l.file[o]
	if !ok || file.where == used.where || o.NoEffect != "" || o.same(used.text, file.text) {
		return
	}
	reason := fmt.Sprintf("value %q replaces %q of %s", used.text, file.text, file.where)
	if o.Secret {
		reason = "replaces a different value of " + file.where
	}
	l.notices = append(l.notices, Notice{Where: used.where, Reason: reason, Override: true})
}

// same reports whether two values are equivalent.
func (o *Option) same(a, b string) bool {
	if o.Boolean() {
		x, _ := boolean().parse(a)
		y, _ := boolean().parse(b)
		return x == y
	}
	return a == b
}

// option returns the option that sets a field of l.config, so that checks refer to fields
// and never to flags.
func (l *loader) option(field any) *Option {
	for _, o := range Options {
		if o.value.field != nil && o.value.field(&l.config) == field {
			return o
		}
	}
	panic(fmt.Sprintf("no option fills the field %T", field))
}

// origin returns where the value of a field came from.
func (l *loader) origin(field any) given { return l.from[l.option(field)] }

// refuse returns an error about the value of a field.
func (l *loader) refuse(field any, problem, allowed string) error {
	g := l.origin(field)
	return &Error{Where: g.where, Value: g.text, Problem: problem, Allowed: allowed}
}

// readable returns the content of the file named by a field; nil if none is named.
func (l *loader) readable(field *string, what string) ([]byte, error) {
	if l.sources.ReadFile == nil || *field == "" {
		return nil, nil
	}
	text, err := l.sources.ReadFile(*field)
	if err != nil {
		return nil, l.refuse(field, "cannot be read: "+Reason(err), what)
	}
	return append([]byte{}, text...), nil // not nil if the file is empty
}

// Reason returns a file error without the operation and the path.
func Reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
