package version

import (
	"runtime/debug"
	"testing"
)

func TestFill(t *testing.T) {
	bi := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"},
		},
	}
	for _, tc := range []struct{ in, want Info }{
		{Info{}, Info{Version: "v0.1.0", Commit: "abc-dirty"}},
		{Info{Version: "v9", Commit: "def"}, Info{Version: "v9", Commit: "def"}},
	} {
		got := tc.in
		got.fill(bi)
		if got != tc.want {
			t.Errorf("fill(%v) = %v, want %v", tc.in, got, tc.want)
		}
	}
	got := Info{}
	got.fill(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}})
	if got != (Info{}) {
		t.Errorf("fill from nothing = %v", got)
	}
}

func TestGetIsNeverEmpty(t *testing.T) {
	if i := Get(); i.Version == "" || i.Commit == "" || i.Go == "" {
		t.Errorf("Get() = %+v", i)
	}
}
