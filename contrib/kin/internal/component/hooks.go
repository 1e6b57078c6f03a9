package component

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// HookCommand is the hidden command of the kin binary that runs a hook: a step
// of a unit that is more than a command line. Hooks are processes of their own,
// because only the supervisor may wait for the first process's children.
const HookCommand = "machine-hook"

// Hooks by name.
const (
	hookEnsureOVSDB      = "ensure-ovsdb"      // DATABASE SCHEMA
	hookPrepareDatapath  = "prepare-datapath"  // no arguments
	hookRestrictDatapath = "restrict-datapath" // no arguments
	hookAwaitTCP         = "await-tcp"         // ADDRESS
	hookAccount          = "account"           // ACCOUNT NODE ADMIN FILE
)

// hook returns the command line of a hook. It runs kin as /proc/1/exe, since the machine's first
// process is kin, wherever its file is.
func hook(name string, args ...string) []string {
	return append([]string{"/proc/1/exe", HookCommand, name}, args...)
}

// RunHook runs a hook.
func RunHook(ctx context.Context, name string, args []string) error {
	hooks := map[string]struct {
		args int
		run  func(context.Context, []string) error
	}{
		hookEnsureOVSDB:      {2, ensureOVSDB},
		hookPrepareDatapath:  {0, prepareDatapath},
		hookRestrictDatapath: {0, restrictDatapath},
		hookAwaitTCP:         {1, awaitTCP},
		hookAccount:          {4, getAccount},
	}
	h, known := hooks[name]
	if !known || len(args) != h.args {
		return fmt.Errorf("no hook %q with %d arguments", name, len(args))
	}
	if err := h.run(ctx, args); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// ensureOVSDB creates a database unless it exists.
func ensureOVSDB(ctx context.Context, args []string) error {
	database, schema := args[0], args[1]
	if _, err := os.Stat(database); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := output(ctx, "ovsdb-tool", "create", database, schema)
	return err
}

// prepareDatapath makes the switch open its datapath when it starts, because
// only then does it record the capabilities of the datapath. It creates the integration bridge,
// which every OVN node has, and leaves the bridge's other settings to ovnkube.
func prepareDatapath(ctx context.Context, _ []string) error {
	if _, err := output(ctx, "ovs-vsctl", "--no-wait", "--may-exist", "add-br", "br-int", "--",
		"set", "Bridge", "br-int", "datapath_type=netdev", "fail_mode=secure"); err != nil {
		return err
	}
	if row, err := output(ctx, "ovs-vsctl", "get", "Open_vSwitch", ".", "datapaths:netdev"); err == nil {
		// Do not mistake the capabilities that an earlier switch recorded for those of this one.
		_, err := output(ctx, "ovs-vsctl", "--no-wait", "clear", "Datapath", strings.TrimSpace(row), "capabilities")
		return err
	}
	_, err := output(ctx, "ovs-vsctl", "--no-wait", "--", "--id=@d", "create", "Datapath", "datapath_version=0", "--",
		"set", "Open_vSwitch", ".", "datapaths:netdev=@d")
	return err
}

// restrictDatapath removes the all-zero source translation from the datapath's
// capabilities: the userspace connection tracker of Open vSwitch 3.1
// aborts on it. The capabilities are recorded a moment after the switch has started.
//
// It also disables the tracker's check of sequence numbers: a packet outside the
// window would pass untranslated, from an address that the client does not know, and
// the client would reset the connection. The kernel's datapath disables the check for its own
// connections.
func restrictDatapath(ctx context.Context, _ []string) error {
	if _, err := output(ctx, "ovs-appctl", "-t", "ovs-vswitchd", "dpctl/ct-disable-tcp-seq-chk"); err != nil {
		return err
	}
	for {
		row, err := output(ctx, "ovs-vsctl", "get", "Open_vSwitch", ".", "datapaths:netdev")
		if err != nil {
			return err
		}
		row = strings.TrimSpace(row)
		capabilities, err := output(ctx, "ovs-vsctl", "get", "Datapath", row, "capabilities")
		if err != nil {
			return err
		}
		if strings.Contains(capabilities, "ct_zero_snat=") {
			_, err := output(ctx, "ovs-vsctl", "--no-wait", "set", "Datapath", row, "capabilities:ct_zero_snat=false")
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("await the datapath's capabilities: %w", err)
		}
	}
}

// awaitTCP waits until a server accepts connections, but only for a limited time: a daemon that cannot
// reach its server should report that itself.
func awaitTCP(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", args[0])
		if err == nil {
			return conn.Close()
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			fmt.Fprintf(os.Stderr, "kin: going on without %s: %v\n", args[0], err)
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func output(ctx context.Context, argv ...string) (string, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
