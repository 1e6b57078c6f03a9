package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Options of a supervisor.
type Options struct {
	// Env is every unit's environment.
	Env []string
	// LogDir receives NAME.log of each unit.
	LogDir string
}

// Supervisor runs units.
type Supervisor struct {
	options Options
	reaper  *reaper
	order   []string
	units   map[string]*runner
}

// New prepares units without running them.
func New(units []Unit, options Options) (*Supervisor, error) {
	sorted, err := order(units)
	if err != nil {
		return nil, fmt.Errorf("order units: %w", err)
	}
	s := &Supervisor{options: options, reaper: newReaper(), order: sorted, units: map[string]*runner{}}
	for _, u := range units {
		s.units[u.Name] = newRunner(s, u)
	}
	return s, nil
}

// Run starts the units, keeps them running until ctx ends, then stops them in
// reverse order.
func (s *Supervisor) Run(ctx context.Context) {
	reaping, stopReaping := context.WithCancel(context.Background())
	defer stopReaping()
	go s.reaper.run(reaping)
	for _, name := range s.order {
		s.units[name].request(wantRunning)
	}
	<-ctx.Done()
	for i := len(s.order) - 1; i >= 0; i-- {
		s.units[s.order[i]].stop()
	}
}

// Statuses returns the statuses of all units, in the order in which they start.
func (s *Supervisor) Statuses() []Status {
	list := make([]Status, 0, len(s.order))
	for _, name := range s.order {
		list = append(list, s.units[name].current())
	}
	return list
}

// Do starts, stops, restarts or kills a unit. A killed unit is restarted
// like one that crashed; stop, restart and kill return when the unit has ended.
func (s *Supervisor) Do(verb, name string) error {
	r, known := s.units[name]
	if !known {
		return fmt.Errorf("no component %q here", name)
	}
	switch verb {
	case "start":
		r.request(wantRunning)
	case "stop":
		r.stop()
	case "restart":
		r.stop()
		r.request(wantRunning)
	case "kill":
		return r.kill()
	default:
		return fmt.Errorf("cannot %q a component", verb)
	}
	return nil
}

// signal sends a signal to a unit if it runs.
func (s *Supervisor) signal(name string, sig syscall.Signal) {
	if r, known := s.units[name]; known {
		r.mu.Lock()
		pid := r.status.Pid
		r.mu.Unlock()
		if pid != 0 {
			_ = syscall.Kill(pid, sig)
		}
	}
}

const (
	firstBackoff = 200 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// calm is how long a unit must run for earlier crashes to be forgotten.
	calm        = 20 * time.Second
	stepTimeout = 2 * time.Minute
	// stopTimeout is how long a daemon may take to end before it is killed.
	stopTimeout   = 5 * time.Second
	probeInterval = 100 * time.Millisecond
)

type want int

const (
	wantStopped want = iota
	wantRunning
)

// runner owns one unit: a goroutine that runs as long as the unit is to run.
type runner struct {
	s    *Supervisor
	unit Unit

	// acting serializes request and stop; the loop never holds it.
	acting sync.Mutex
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	status Status
	ready  chan struct{} // closed while ready
}

func newRunner(s *Supervisor, u Unit) *runner {
	return &runner{s: s, unit: u, ready: make(chan struct{}), status: Status{Name: u.Name, State: StateStopped, Since: time.Now()}}
}

func (r *runner) request(w want) {
	r.acting.Lock()
	defer r.acting.Unlock()
	if w == wantRunning && r.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		r.cancel, r.done = cancel, make(chan struct{})
		go func() {
			defer close(r.done)
			r.loop(ctx)
		}()
	}
	if w == wantStopped && r.cancel != nil {
		r.cancel()
		<-r.done
		r.cancel = nil
	}
}

func (r *runner) stop() { r.request(wantStopped) }

func (r *runner) current() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// set sets the state; problem "" means that there is none.
func (r *runner) set(state string, pid int, problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wasReady := r.status.State == StateReady
	if r.status.State != state {
		r.status.Since = time.Now()
	}
	r.status.State, r.status.Pid, r.status.Problem = state, pid, problem
	if state == StateReady && !wasReady {
		close(r.ready)
	}
	if state != StateReady && wasReady {
		r.ready = make(chan struct{})
	}
}

func (r *runner) readiness() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// kill kills the unit's process without informing the loop.
func (r *runner) kill() error {
	pid := r.current().Pid
	if pid == 0 {
		return fmt.Errorf("component %s is not running", r.unit.Name)
	}
	// It is no error if the process has just ended by itself.
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill component %s: %w", r.unit.Name, err)
	}
	timeout := time.After(stopTimeout)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for r.current().Pid == pid {
		select {
		case <-timeout:
			return fmt.Errorf("component %s does not end", r.unit.Name)
		case <-again.C:
		}
	}
	return nil
}

// loop restarts the unit until ctx ends.
func (r *runner) loop(ctx context.Context) {
	defer r.set(StateStopped, 0, "")
	r.set(StateWaiting, 0, "")
	for _, earlier := range r.unit.After {
		select {
		case <-r.s.units[earlier].readiness():
		case <-ctx.Done():
			return
		}
	}
	for backoff := firstBackoff; ; {
		began := time.Now()
		err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > calm {
			backoff = firstBackoff
		}
		r.set(StateBackoff, 0, err.Error())
		r.mu.Lock()
		r.status.Restarts++
		r.mu.Unlock()
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// once runs the daemon once, from preparation to its end.
func (r *runner) once(ctx context.Context) error {
	output, err := openLog(r.s.options.LogDir, r.unit.Name)
	if err != nil {
		return err
	}
	defer output.Close()
	r.set(StateStarting, 0, "")
	for _, frozen := range r.unit.Freeze {
		r.s.signal(frozen, syscall.SIGSTOP)
	}
	defer r.thaw()
	env := append(append([]string{}, r.s.options.Env...), r.unit.Env...)
	if err := r.steps(ctx, r.unit.Before, env, output); err != nil {
		fmt.Fprintf(output, "kin: before start: %v\n", err)
		return err
	}
	pid, ended, err := r.s.reaper.start(r.unit.Exec, env, output)
	if err != nil {
		fmt.Fprintf(output, "kin: %v\n", err)
		return err
	}
	r.set(StateStarting, pid, "")
	life, endLife := context.WithCancel(ctx)
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		r.settle(life, pid, env, output)
	}()
	// Nothing may change the state or the log after this run is over.
	defer func() { endLife(); <-settled }()
	select {
	case status := <-ended:
		err := failure(r.unit.Name, status)
		if err == nil {
			err = fmt.Errorf("%s ended", r.unit.Name)
		}
		fmt.Fprintf(output, "kin: %v\n", err)
		return err
	case <-ctx.Done():
		r.end(pid, ended)
		return ctx.Err()
	}
}

// settle probes a started daemon until it is ready or its run ends.
func (r *runner) settle(life context.Context, pid int, env []string, output *os.File) {
	run := func(ctx context.Context, argv []string) error { return r.s.reaper.finish(ctx, argv, env, output) }
	for limit := probeTimeout; ; {
		probe, cancel := context.WithTimeout(life, limit)
		err := r.unit.Ready.ask(probe, run)
		if probe.Err() != nil {
			limit = min(2*limit, lastProbeTimeout)
		}
		cancel()
		if err == nil {
			err = r.steps(life, r.unit.Started, env, output)
		}
		if life.Err() != nil {
			return
		}
		if err == nil {
			r.thaw()
			r.set(StateReady, pid, "")
			return
		}
		r.set(StateStarting, pid, err.Error())
		select {
		case <-time.After(probeInterval):
		case <-life.Done():
			return
		}
	}
}

func (r *runner) steps(ctx context.Context, commands [][]string, env []string, output *os.File) error {
	for _, argv := range commands {
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		err := r.s.reaper.finish(step, argv, env, output)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) thaw() {
	for _, frozen := range r.unit.Freeze {
		r.s.signal(frozen, syscall.SIGCONT)
	}
}

// end terminates a daemon, and kills it if it does not end in time.
func (r *runner) end(pid int, ended <-chan syscall.WaitStatus) {
	_ = syscall.Kill(pid, syscall.SIGTERM)
	_ = syscall.Kill(pid, syscall.SIGCONT) // a stopped process would not handle the first signal
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-ended
	}
}
