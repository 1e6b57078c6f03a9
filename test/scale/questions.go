package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/kube"
	"github.com/ovnkube/ovnkube/test/scale/load"
	"github.com/ovnkube/ovnkube/test/scale/result"
)

// question is what somebody asks "ovnkube egress" about the cluster.
type question struct {
	phase string
	args  []string
}

// questions are asked of a cluster in which everything is in place.
func (b *bench) questions() []question {
	pods := b.agents.PodsOf(load.Plain)
	if b.size.EgressIPs > 0 {
		pods = b.agents.PodsOf(load.IPGroup(0))
	}
	questions := []question{
		{"explain a pod", []string{"explain", "pod", kube.PodKey(pods[0]), "--to", "192.0.2.1:443"}},
		{"status", []string{"status"}},
	}
	if holder := b.holder(); holder != "" {
		questions = append(questions, question{"what if a node is lost", []string{"what-if", "--lose", holder}})
	}
	return questions
}

// ask measures how long answers take, and what they cost those who ask: each time a new
// process reads what it needs from the API server.
func (b *bench) ask(ctx context.Context) error {
	for range b.repeat {
		for _, q := range b.questions() {
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
