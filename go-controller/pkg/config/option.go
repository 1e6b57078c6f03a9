package config

// Option is one setting. Options without a Flag exist in the file only, options
// without a Key on the command line only.
type Option struct {
	// Flag is the name on the command line, without dashes.
	Flag string
	// OldFlag is a deprecated name of the same flag.
	OldFlag string
	// OldSwitch is a deprecated boolean flag that stands for the value OldValue.
	OldSwitch, OldValue string
	// Section and Key name the option in the file, in lower case.
	Section, Key string
	// OldSection and OldKey are a deprecated place of the same option.
	OldSection, OldKey string
	// Env is the environment variable that is read if neither flag nor file has the option.
	Env string
	// ExternalID is the key in Open vSwitch's external_ids that is read after Env.
	ExternalID string
	// Default is used if no source has the option. If it is empty, the value may be empty
	// too: the field then keeps its zero value.
	Default string
	// Usage says what the option does, in one sentence without a full stop.
	Usage string
	// NoEffect says why a value is accepted without effect; empty for an option that has
	// one. An option may set a field that is not used yet.
	NoEffect string
	// Secret is true if the log must not have the value.
	Secret bool

	value value
}

// Allowed describes the values that the option accepts.
func (o *Option) Allowed() string { return o.value.allowed }

// Boolean reports whether the flag may be given without a value.
func (o *Option) Boolean() bool { return o.value.boolean }

// Name returns the name of the option in messages: its flag, or its section and key in the
// file.
func (o *Option) Name() string {
	if o.Flag != "" {
		return "--" + o.Flag
	}
	return "[" + o.Section + "] " + o.Key
}

// value is the typed part of an option.
type value struct {
	allowed string
	boolean bool
	// set parses text and stores it; it returns false if the text is not allowed.
	set func(c *Config, text string) bool
	// field returns a pointer to the field that set stores into; nil for an option without
	// effect.
	field func(c *Config) any
}

// kind is a type of value: what it accepts, and how it is parsed.
type kind[T any] struct {
	allowed string
	boolean bool
	parse   func(text string) (T, bool)
}

// to returns a value of kind k that is stored in the field.
func to[T any](k kind[T], field func(*Config) *T) value {
	return value{
		allowed: k.allowed,
		boolean: k.boolean,
		field:   func(c *Config) any { return field(c) },
		set: func(c *Config, text string) bool {
			v, ok := k.parse(text)
			if ok {
				*field(c) = v
			}
			return ok
		},
	}
}

// unused returns a value of kind k that is checked and dropped.
func unused[T any](k kind[T]) value {
	return value{
		allowed: k.allowed,
		boolean: k.boolean,
		set: func(_ *Config, text string) bool {
			_, ok := k.parse(text)
			return ok
		},
	}
}
