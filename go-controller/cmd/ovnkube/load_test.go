package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ovnkube/ovnkube/go-controller/pkg/config"
)

// TestLoadUntilRead: a process that starts before Open vSwitch waits for the settings in its external_ids; any other error ends it.
func TestLoadUntilRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{fmt.Errorf("%w: no socket", config.ErrExternalIDs), fmt.Errorf("%w: timeout", config.ErrExternalIDs), nil}
		calls := 0
		load := func() (config.Config, []config.Notice, error) {
			calls++
			return config.Config{PIDFile: fmt.Sprint(calls)}, nil, errs[min(calls, len(errs))-1]
		}
		if cfg, _, err := loadUntilRead(t.Context(), load); err != nil || cfg.PIDFile != "3" {
			t.Errorf("configuration %q, %v", cfg.PIDFile, err)
		}
		errs, calls = []error{errors.New("not allowed")}, 0
		if _, _, err := loadUntilRead(t.Context(), load); !errors.Is(err, errs[0]) || calls != 1 {
			t.Errorf("%d attempts: %v", calls, err)
		}
		errs = []error{config.ErrExternalIDs}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := loadUntilRead(ctx, load); !errors.Is(err, config.ErrExternalIDs) {
			t.Errorf("after its end: %v", err)
		}
	})
}
