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
	// Env is the environment variable that is read where flag and file are silent.
	Env string
	// ExternalID is the key in Open vSwitch's external_ids that is read after Env.
	ExternalID string
	// Default is used where no source speaks. Where it is empty, so may be the
	// value: the field then keeps its zero value.
	Default string
	// Usage says what the option does, in one sentence without a full stop.
	Usage string
	// NoEffect says why a value is accepted but changes nothing; empty for an
	// option that acts. An option may fill a field that nobody reads yet.
	NoEffect string

	value value
}

// Allowed says which values the option takes.
func (o *Option) Allowed() string { return o.value.allowed }

// Boolean says whether the flag may stand without a value.
func (o *Option) Boolean() bool { return o.value.boolean }

// Name returns how the option is spoken of: its flag, or its place in the file.
func (o *Option) Name() string {
	if o.Flag != "" {
		return "--" + o.Flag
	}
	return "[" + o.Section + "] " + o.Key
}

// value is the typed half of an option.
type value struct {
	allowed string
	boolean bool
	// set parses text and stores it; false where the text is not allowed.
	set func(c *Config, text string) bool
	// field points to what set stores into; nil for an option without effect.
	field func(c *Config) any
}

// kind is a type of value: what it takes, and how that is read.
type kind[T any] struct {
	allowed string
	boolean bool
	parse   func(text string) (T, bool)
}

// to is a value of kind k that is stored in the field.
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

// unused is a value of kind k that is checked and dropped.
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
