package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

// question is a question for "ovnkube egress" about the cluster.
type question struct {
	phase string
	args  []string
}

// questions returns questions about a cluster in which everything is in place.
func (b *bench) questions() []question {
	pods := b.agents.PodsOf(load.Plain)
	if b.size.EgressIPs > 0 {
		pods = b.agents.PodsOf(load.IPGroup(0))
	}
	questions := []question{
		explainPod(kube.PodKey(pods[0])),
		{"status", []string{"status"}},
	}
	if holder := b.holder(); holder != "" {
		questions = append(questions, question{"what if a node is lost", []string{"what-if", "--lose", holder}})
	}
	return questions
}

func explainPod(key string) question {
	return question{"explain a pod", []string{"explain", "pod", key, "--to", "192.0.2.1:443"}}
}

// measureAnswers measures answers in a cluster where everything is in place, and where nothing
// else has anything to do.
func measureAnswers(ctx context.Context, o options) error {
	b, end, err := begin(ctx, o)
	if err != nil {
		return err
	}
	defer end()
	if err := b.makeServed(ctx); err != nil {
		return err
	}
	group := load.Plain
	if b.size.EgressIPs > 0 {
		group = load.IPGroup(0)
	}
	return b.ask(ctx, []question{explainPod(group + "/" + load.PodName(0))})
}

// madeFile is the file in a directory with a kept cluster that contains the cluster's size.
const madeFile = "made"

// makeServed creates all objects as they are when everything is in place, unless they are kept
// from an earlier run.
func (b *bench) makeServed(ctx context.Context) (err error) {
	if b.clients, err = load.NewClients(b.plane.REST()); err != nil {
		return err
	}
	size, made := fmt.Sprintf("%+v", b.size), filepath.Join(b.cluster, madeFile)
	if b.cluster != "" {
		text, err := os.ReadFile(made)
		if err == nil && string(text) != size {
			return fmt.Errorf("%s has another cluster: %s", b.cluster, text)
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := b.clients.InstallCRDs(ctx, b.crds); err != nil {
		return err
	}
	if err := b.clients.MakeServed(ctx, b.size); err != nil {
		return err
	}
	b.say("all objects are there")
	if b.cluster == "" {
		return nil
	}
	return os.WriteFile(made, []byte(size), 0o644)
}

// ask measures how long answers take, and what they cost the client: each time a new
// process reads what it needs from the API server.
func (b *bench) ask(ctx context.Context, questions []question) error {
	for range b.repeat {
		for _, q := range questions {
			if err := b.askOne(ctx, q); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) askOne(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	began := time.Now()
	answer, err := b.plane.Ask(ctx, append([]string{"egress"}, append(q.args, "--request-timeout", eventTimeout.String())...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(q.args, " "), err)
	}
	r := result.Result{Size: b.size, Phase: q.phase, Done: milliseconds(began, time.Now())}
	r.CPU, r.Peak = answer.CPU.Seconds(), float64(answer.Peak)/mebi
	b.say("%-28s done %6.0f ms, CPU of the one who asks %5.2f s, %3.0f MiB", q.phase, r.Done, r.CPU, r.Peak)
	return result.Append(b.out, r)
}
