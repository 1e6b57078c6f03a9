package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/host"
)

// refusing is a kernel that lacks a target: it refuses optional rules.
type refusing struct {
	host.ChainWriter
	err error
}

func (w *refusing) Apply(ctx context.Context, _ string, want host.Rules) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(want) > 0 {
		return w.err
	}
	return nil
}

// TestOptional: rules that the kernel refuses are not tried for a while, also those of others. A write that was given up says
// nothing about the kernel.
func TestOptional(t *testing.T) {
	var o host.Optional
	w, now := &refusing{}, time.Now()
	optional := host.Rules{{Name: "c"}: nil}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if written, refused, err := o.Apply(ended, w, "a", optional, nil, now); written || refused != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v, %v, %v", written, refused, err)
	}
	if written, refused, err := o.Apply(t.Context(), w, "b", optional, nil, now); !written || refused != nil || err != nil {
		t.Errorf("after another write was given up: %v, %v, %v", written, refused, err)
	}
	w.err = errors.New("no such target")
	if written, refused, err := o.Apply(t.Context(), w, "b", optional, nil, now); written || refused == nil || err != nil {
		t.Errorf("refused: %v, %v, %v", written, refused, err)
	}
	w.err = nil
	for after, want := range map[time.Duration]bool{host.OptionalRetry - 1: false, host.OptionalRetry: true} {
		if written, refused, err := o.Apply(t.Context(), w, "a", optional, nil, now.Add(after)); written != want || refused != nil || err != nil {
			t.Errorf("%s after a refusal: %v, %v, %v", after, written, refused, err)
		}
	}
}
