// Package settings is the driver for kernel parameters, the host.Kernel of their paths below
// /proc/sys and their values.
//
// We own a parameter while its previous value is recorded, which is done in Open_vSwitch before the
// parameter is changed. To delete one means to restore that value. We do not own a parameter that
// had the desired value already.
//
// Callers: the node's gateway and the node side of EgressIP, through a host.Set.
package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
	"github.com/ovnkube/ovnkube/go-controller/pkg/host/link"
)

// Record is the key in Open_vSwitch's external_ids with the previous values.
const Record = "ovnkube-sysctls"

// Store keeps external_ids of Open_vSwitch.
type Store interface {
	System(ctx context.Context) (map[string]string, error)
	SetSystem(ctx context.Context, ids map[string]string) error
}

// Kernel reads and writes parameters of the caller's network namespace.
type Kernel struct{ store Store }

var (
	_ host.Kernel[string, string]   = Kernel{}
	_ host.Replacer[string, string] = Kernel{}
)

// gone is listed as the value of a parameter whose link does not exist. There is nothing to write until it does.
const gone = ""

// NewSet returns the Set of a node's parameters.
func NewSet(store Store) *host.Set[string, string] {
	return host.NewSet("kernel parameters", Kernel{store}, func(want, have string) bool { return want == have || have == gone })
}

// List implements host.Kernel.
func (k Kernel) List(ctx context.Context) (map[string]string, error) {
	before, err := k.before(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name := range before {
		value, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			value, err = gone, nil // the record is still ours
		}
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}

// Add implements host.Kernel.
func (k Kernel) Add(ctx context.Context, name, value string) error {
	now, err := read(name)
	if err != nil || now == value {
		return err
	}
	before, err := k.before(ctx)
	if err != nil {
		return err
	}
	if _, recorded := before[name]; !recorded {
		before[name] = now
		if err := k.write(ctx, before); err != nil {
			return err
		}
	}
	if err := link.SetSysctl(name, value); err != nil {
		return err
	}
	klog.V(2).InfoS("Set kernel parameter", "name", name, "from", now, "to", value)
	return nil
}

// Replace implements host.Replacer.
func (k Kernel) Replace(ctx context.Context, name, _, value string) error {
	return k.Add(ctx, name, value)
}

// Delete implements host.Kernel.
func (k Kernel) Delete(ctx context.Context, name, _ string) error {
	before, err := k.before(ctx)
	if err != nil {
		return err
	}
	value, recorded := before[name]
	if !recorded {
		return nil
	}
	if err := link.SetSysctl(name, value); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(before, name)
	klog.V(2).InfoS("Restored kernel parameter", "name", name, "to", value)
	return k.write(ctx, before)
}

// before returns the recorded values.
func (k Kernel) before(ctx context.Context) (map[string]string, error) {
	system, err := k.store.System(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the recorded kernel parameters: %w", err)
	}
	return Recorded(system)
}

// Recorded returns the previous values of the parameters that we own, according to the external_ids of Open_vSwitch.
func Recorded(ids map[string]string) (map[string]string, error) { return decode(ids[Record]) }

// Merge returns the record for a database that replaces a lost one, given the record of the lost database and the present one, of
// those who have changed parameters since. The value in the lost database is the earlier one.
func Merge(lost, now string) (string, error) {
	before, err := decode(lost)
	if err != nil {
		return "", err
	}
	since, err := decode(now)
	if err != nil {
		return "", err
	}
	maps.Copy(since, before)
	return encode(since)
}

func decode(text string) (map[string]string, error) {
	before := map[string]string{}
	if text == "" {
		return before, nil
	}
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		return nil, fmt.Errorf("parse external_ids:%s %q: %w", Record, text, err)
	}
	return before, nil
}

func encode(before map[string]string) (string, error) {
	if len(before) == 0 {
		return "", nil
	}
	text, err := json.Marshal(before)
	if err != nil {
		return "", fmt.Errorf("encode kernel parameters: %w", err)
	}
	return string(text), nil
}

func (k Kernel) write(ctx context.Context, before map[string]string) error {
	text, err := encode(before)
	if err != nil {
		return err
	}
	if err := k.store.SetSystem(ctx, map[string]string{Record: text}); err != nil {
		return fmt.Errorf("record kernel parameters: %w", err)
	}
	return nil
}

// State returns the current values of parameters: the kernel does not notify changes of some of
// them, such as those for ICMP redirects.
func State(wanted map[string]string) (string, error) {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		value, err := read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		fmt.Fprintln(&out, name, value)
	}
	return out.String(), nil
}

func read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}
