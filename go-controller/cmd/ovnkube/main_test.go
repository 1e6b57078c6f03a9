package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/eventually"
)

// asProgram makes the test binary run as ovnkube.
const asProgram = "OVNKUBE_TEST_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func ovnkube(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = []string{asProgram + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ovn.conf")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	out, err := ovnkube("--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "ovnkube version ") || !strings.Contains(string(out), ", commit ") {
		t.Errorf("--version: %q, %v", out, err)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	out, err := ovnkube("--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--init-master NAME", "--init-node NAME", "--cleanup-node NAME", "--config-file FILE",
		"--cluster-subnets value", "--nodeport  ", "--k8s-token value", "--metrics-bind-address value"} {
		if !strings.Contains(string(out), flag) {
			t.Errorf("--help has no %s", flag)
		}
	}
	if strings.Contains(string(out), "gateway-local") {
		t.Error("--help shows deprecated flags")
	}
}

// Any error in the command line or the file: exit status 1, one line.
func TestRefusals(t *testing.T) {
	const node = "--init-node=n1"
	unknownKey := write(t, "[default]\nmtu=1400\nmtv=1500\n")
	notIni := write(t, "mtu: 1400\n")
	overlap := write(t, "[default]\ncluster-subnets=10.244.0.0/16\n[kubernetes]\nservice-cidrs=10.244.96.0/24\n")
	otherRoles := write(t, "[page]\nbind-address=192.0.2.1:9414\nprivkey=/none/page.key\ncert=/none/page.crt\n"+
		"[ovnnorth]\naddress=ssl:192.0.2.1:6641\nclient-privkey=/none/nb\n[ovnsouth]\naddress=ssl:192.0.2.1:6642\nclient-privkey=/none/sb\n"+
		"[kubernetes]\ncacert=/none/ca\n")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--init-master=n1", "--config-file", otherRoles}, otherRoles + `:page:privkey: value "/none/page.key": cannot be read: no such file or directory`},
		{[]string{node, "--init-master=n1", "--config-file", otherRoles}, otherRoles + `:page:privkey: `},
		{[]string{node, "--config-file", otherRoles}, otherRoles + `:ovnsouth:client-privkey: value "/none/sb": cannot be read: no such file or directory`},
		{[]string{"--cleanup-node=n1", "--config-file", otherRoles}, otherRoles + `:kubernetes:cacert: value "/none/ca": cannot be read: no such file or directory`},
		{nil, "nothing to do: one of --init-master NAME, --init-node NAME (or both) or --cleanup-node NAME is needed"},
		{[]string{"--init-node="}, `--init-node: value "": allowed: the name of a node`},
		{[]string{"--init-node=", "--init-master=n1"}, `--init-node: value "": allowed: the name of a node`},
		{[]string{node, "--init-master", ""}, `--init-master: value "": allowed: the name of a node`},
		{[]string{node, "--cleanup-node="}, `--cleanup-node: value "": allowed: the name of a node`},
		{[]string{node, "--cleanup-node", "n1"}, "--cleanup-node goes with neither --init-master nor --init-node"},
		{[]string{node, "now"}, "now: unexpected argument; allowed: flags only, see ovnkube --help"},
		{[]string{node, "--init-cluster-manager", "n1"}, "--init-cluster-manager: unknown flag; allowed: the flags in ovnkube --help"},
		{[]string{node, "--no-such=1"}, "--no-such=1: unknown flag; allowed: the flags in ovnkube --help"},
		{[]string{node, "-x"}, "--x: unknown flag; allowed: the flags in ovnkube --help"},
		{[]string{node, "--mtu"}, "--mtu: value missing; allowed: --mtu VALUE or --mtu=VALUE"},
		{[]string{node, "--mtu", "many"}, `--mtu: value "many": allowed: a number of bytes from 576 to 65535`},
		{[]string{node, "--nodeport=2"}, `--nodeport: value "2": allowed: true or false`},
		{[]string{node, "--config-file", "/none"}, `--config-file: value "/none": cannot be read: no such file or directory; allowed: a readable file`},
		{[]string{node, "--config-file", "/"}, `--config-file: value "/": cannot be read: is a directory; allowed: a readable file`},
		{[]string{node, "--config-file", unknownKey}, unknownKey + `:default:mtv: value "1500": unknown key; allowed: cluster-subnets, mtu, `},
		{[]string{node, "--config-file", notIni}, notIni + ":1:1: "},
		{[]string{node, "--config-file", overlap}, overlap + `:kubernetes:service-cidrs: value "10.244.96.0/24": 10.244.96.0/24 overlaps 10.244.0.0/16 of ` +
			overlap + `:default:cluster-subnets "10.244.0.0/16"; allowed: ranges that share no address`},
	} {
		cmd := ovnkube(tc.args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v: %v, want status 1", tc.args, err)
		}
		if got := stderr.String(); !strings.HasPrefix(got, "ovnkube: "+tc.want) || strings.Count(got, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%v:\n got %s\nwant ovnkube: %s\nstdout %q", tc.args, got, tc.want, stdout.String())
		}
	}
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A master that cannot reach the API server waits, is healthy, and ends cleanly.
func TestLifeOfAProcess(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	pidFile, logFile := filepath.Join(dir, "pid"), filepath.Join(dir, "log")
	args := []string{
		"--init-master", "n1", "--k8s-apiserver", "http://" + freeAddress(t), "--metrics-bind-address", address,
		"--pidfile", pidFile, "--logfile", logFile, "--loglevel", "5", "--enable-egress-firewall",
	}
	cmd := ovnkube(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	eventually.Succeeds(t, "the process to be ready", func() error {
		r, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		if r.StatusCode != http.StatusOK {
			return errors.New(string(body))
		}
		return nil
	})
	if pid, err := os.ReadFile(pidFile); err != nil || string(pid) != fmt.Sprintln(cmd.Process.Pid) {
		t.Errorf("pid file: %q, %v", pid, err)
	}
	second, err := ovnkube(args...).CombinedOutput()
	want := fmt.Sprintf("ovnkube: --pidfile: value %q: ovnkube runs as process %d; allowed: one process a file\n", pidFile, cmd.Process.Pid)
	if err == nil || string(second) != want {
		t.Errorf("second process: %v\n got %s\nwant %s", err, second, want)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := eventually.Receive(t, "the process to end after SIGTERM", ended); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if _, err := os.Stat(pidFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("pid file is left: %v", err)
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr.String())
	}
	log, err := os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Starting"`, `--enable-egress-firewall: value "true" accepted, has no effect: EgressFirewall objects are not enforced`, address} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
}

// A pid file whose process is gone, or is another program, is taken over.
func TestStalePIDFile(t *testing.T) {
	for _, content := range []string{"1\n", "999999999\n", "text", ""} {
		path := write(t, content)
		remove, err := writePIDFile(path)
		if err != nil {
			t.Errorf("%q: %v", content, err)
			continue
		}
		remove()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// TestFilesThatCannotBeWritten: the error names the option.
func TestFilesThatCannotBeWritten(t *testing.T) {
	for _, option := range []string{"--logfile", "--pidfile"} {
		out, err := ovnkube("--init-master", "n1", option, "/none/file").CombinedOutput()
		if want := "ovnkube: " + option + ": value \"/none/file\": cannot be written: no such file or directory; allowed: a file in a directory that exists\n"; err == nil || string(out) != want {
			t.Errorf("%v: %s, want %s", err, out, want)
		}
	}
}
