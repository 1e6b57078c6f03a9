package bridge

import (
	"strconv"
	"strings"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// Ports are the OpenFlow port numbers of the bridge; 0 if not known.
type Ports struct {
	Uplink, Patch int
}

// Complete reports whether flows with any symbol can be resolved.
func (p Ports) Complete() bool { return p.Uplink > 0 && p.Patch > 0 }

// Resolve replaces the symbols in flows by port numbers. Flows with a symbol whose number is not
// known are left out.
func (p Ports) Resolve(flows []host.Flow) []host.Flow {
	resolved := make([]host.Flow, 0, len(flows))
	for _, f := range flows {
		if text, ok := p.resolve(string(f)); ok {
			resolved = append(resolved, host.Flow(text))
		}
	}
	return resolved
}

func (p Ports) resolve(text string) (string, bool) {
	for _, s := range []struct {
		symbol string
		number int
	}{{Uplink, p.Uplink}, {Patch, p.Patch}} {
		for _, field := range []string{in(s.symbol), output(s.symbol)} {
			if !strings.Contains(text, field) {
				continue
			}
			if s.number <= 0 {
				return "", false
			}
			text = strings.ReplaceAll(text, field, strings.TrimSuffix(field, s.symbol)+strconv.Itoa(s.number))
		}
	}
	return text, true
}
