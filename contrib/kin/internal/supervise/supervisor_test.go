package supervise

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// running starts a supervisor of real processes and stops it with the test.
func running(t *testing.T, units ...Unit) (*Supervisor, string) {
	t.Helper()
	logs := t.TempDir()
	s, err := New(units, Options{Env: []string{"PATH=" + os.Getenv("PATH")}, LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		for _, u := range s.Statuses() {
			if u.State != StateStopped || u.Pid != 0 {
				t.Errorf("after the end %s is %s with pid %d", u.Name, u.State, u.Pid)
			}
		}
	})
	return s, logs
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func state(s *Supervisor, name string) Status {
	for _, u := range s.Statuses() {
		if u.Name == name {
			return u
		}
	}
	return Status{}
}

func shell(script string) []string { return []string{"sh", "-c", script} }

func TestSlowProbeIsGivenMoreTime(t *testing.T) {
	s, _ := running(t, Unit{Name: "d", Exec: shell("exec sleep 1000"), Ready: &Probe{Exec: shell("exec sleep 2.2")}})
	await(t, "ready", func() bool { return state(s, "d").State == StateReady })
}

func TestCrashedUnitComesBack(t *testing.T) {
	dir := t.TempDir()
	s, logs := running(t, Unit{Name: "d", Before: [][]string{shell("echo x >> " + dir + "/before")}, Exec: shell("echo up; exec sleep 1000"), Started: [][]string{shell("echo x >> " + dir + "/started")}})
	await(t, "ready", func() bool { return state(s, "d").State == StateReady })
	first := state(s, "d").Pid
	said := func() string {
		text, err := os.ReadFile(filepath.Join(logs, "d.log"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	await(t, "a message", func() bool { return strings.Count(said(), "up\n") == 1 })
	if err := s.Do("kill", "d"); err != nil {
		t.Fatal(err)
	}
	await(t, "ready again", func() bool {
		u := state(s, "d")
		return u.State == StateReady && u.Pid != first && u.Restarts == 1
	})
	for _, name := range []string{"before", "started"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.Count(string(text), "x") != 2 {
			t.Errorf("%s ran %q, %v; want twice", name, text, err)
		}
	}
	await(t, "a second message", func() bool { return strings.Count(said(), "up\n") == 2 })
	if text := said(); !strings.Contains(text, "ended by signal killed") {
		t.Errorf("log is %q", text)
	}
}

func TestStopAndStart(t *testing.T) {
	s, _ := running(t, Unit{Name: "d", Exec: []string{"sleep", "1000"}})
	await(t, "ready", func() bool { return state(s, "d").State == StateReady })
	if err := s.Do("stop", "d"); err != nil {
		t.Fatal(err)
	}
	if u := state(s, "d"); u.State != StateStopped || u.Pid != 0 {
		t.Errorf("stopped is %+v", u)
	}
	if err := s.Do("kill", "d"); err == nil {
		t.Error("killed what does not run")
	}
	if err := s.Do("start", "d"); err != nil {
		t.Fatal(err)
	}
	await(t, "ready", func() bool { return state(s, "d").State == StateReady })
	if err := s.Do("start", "nonesuch"); err == nil {
		t.Error("started what is not there")
	}
}

func TestUnitWaitsForTheOneItComesAfter(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	s, _ := running(t,
		Unit{Name: "second", Exec: []string{"sleep", "1000"}, After: []string{"first"}},
		Unit{Name: "first", Exec: []string{"sleep", "1000"}, Ready: &Probe{Exec: []string{"test", "-e", gate}}},
	)
	await(t, "a failed probe", func() bool { return state(s, "first").Problem != "" })
	if u := state(s, "second"); u.State != StateWaiting {
		t.Errorf("second is %s before first is ready", u.State)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "both ready", func() bool {
		return state(s, "first").State == StateReady && state(s, "second").State == StateReady
	})
}

func TestFrozenUntilStarted(t *testing.T) {
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	s, _ := running(t,
		Unit{Name: "reader", Exec: []string{"sleep", "1000"}, After: []string{"switch"}},
		Unit{Name: "switch", Exec: []string{"sleep", "1000"}, Started: [][]string{{"test", "-e", gate}}, Freeze: []string{"reader"}},
	)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "reader ready", func() bool { return state(s, "reader").State == StateReady })
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	if err := s.Do("kill", "switch"); err != nil {
		t.Fatal(err)
	}
	reader := state(s, "reader").Pid
	await(t, "reader frozen", func() bool { return processState(t, reader) == "T" && state(s, "switch").Problem != "" })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "switch ready", func() bool { return state(s, "switch").State == StateReady })
	await(t, "reader thawed", func() bool { return processState(t, reader) == "S" })
	if got := state(s, "reader"); got.Pid != reader || got.Restarts != 0 {
		t.Errorf("reader was started again: %+v", got)
	}
}

func processState(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))[2]
}

func TestControlSocket(t *testing.T) {
	s, _ := running(t, Unit{Name: "d", Exec: []string{"sleep", "1000"}})
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, socket) }()
	await(t, "socket", func() bool { _, err := Call(socket, "status", ""); return err == nil })
	units, err := Call(socket, "restart", "d")
	if err != nil || len(units) != 1 || units[0].Name != "d" {
		t.Errorf("got %+v, %v", units, err)
	}
	if _, err := Call(socket, "restart", "e"); err == nil || !strings.Contains(err.Error(), `no component "e"`) {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	run := []string{"true"}
	for want, units := range map[string][]Unit{
		"comes after itself": {{Name: "a", Exec: run, After: []string{"b"}}, {Name: "b", Exec: run, After: []string{"a"}}},
		"is there twice":     {{Name: "a", Exec: run}, {Name: "a", Exec: run}},
		"which is not there": {{Name: "a", Exec: run, After: []string{"b"}}},
		"has no command":     {{Name: "a"}},
	} {
		if err := Check(units); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
