// Package version provides the version of the running build. Callers: the commands, metrics and the user agent of
// API clients.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker: -ldflags "-X <this package>.Version=v1.2.3 -X <this package>.Commit=abc". If not set, the
// values recorded by the Go tool are used.
var (
	Version string
	Commit  string
)

// Info describes a build.
type Info struct {
	// Version is a tag, or "devel".
	Version string
	// Commit is a git commit, with "-dirty" if the work tree had changes, or "unknown".
	Commit string
	// Go is the version of the compiler.
	Go string
}

// Get returns the version of the running build.
func Get() Info {
	i := Info{Version: Version, Commit: Commit, Go: runtime.Version()}
	if bi, ok := debug.ReadBuildInfo(); ok {
		i.fill(bi)
	}
	if i.Version == "" {
		i.Version = "devel"
	}
	if i.Commit == "" {
		i.Commit = "unknown"
	}
	return i
}

// fill fills in from the build information what the linker did not set.
func (i *Info) fill(bi *debug.BuildInfo) {
	if v := bi.Main.Version; i.Version == "" && v != "(devel)" {
		i.Version = v
	}
	if i.Commit != "" {
		return
	}
	dirty := false
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && i.Commit != "" {
		i.Commit += "-dirty"
	}
}

// String returns the output of --version after the name of the program.
func (i Info) String() string {
	return fmt.Sprintf("%s, commit %s, %s", i.Version, i.Commit, i.Go)
}
