package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestChooseDatapath(t *testing.T) {
	has := func() error { return nil }
	lacks := func() error { return errors.New("no Open vSwitch") }
	for _, c := range []struct {
		wanted string
		check  func() error
		got    string
		says   string
	}{
		{"auto", has, "kernel", ""},
		{"auto", lacks, "userspace", ""},
		{"userspace", has, "userspace", ""},
		{"userspace", lacks, "userspace", ""},
		{"kernel", has, "kernel", ""},
		{"kernel", lacks, "kernel", "datapath: kernel: no Open vSwitch"},
	} {
		got, err := chooseDatapath(c.wanted, c.check)
		if got != c.got || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %s, %v; want %s, %q", c.wanted, got, err, c.got, c.says)
		}
	}
}
