package lab

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// ProbeImage is an image that contains only /probe.
const ProbeImage = "localhost/ovnkube-probe:e2e"

// loadProbe loads the probe's image into the cluster's nodes.
func (l *Lab) loadProbe(ctx context.Context) error {
	if err := l.buildProbe(ctx); err != nil {
		return err
	}
	archive := filepath.Join(l.Dir, "probe.tar")
	if err := writeImage(archive, ProbeImage, l.probe); err != nil {
		return fmt.Errorf("make the probe's image: %w", err)
	}
	return l.Kin.LoadImage(ctx, archive)
}

// buildProbe builds the probe, unless $E2E_PROBE names one that is already built.
func (l *Lab) buildProbe(ctx context.Context) error {
	if l.probe = os.Getenv("E2E_PROBE"); l.probe != "" {
		return nil
	}
	l.probe = filepath.Join(l.Dir, "probe")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", l.probe,
		"github.com/ovnkube/ovnkube/test/e2e/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the probe: %w: %s", err, out)
	}
	return nil
}

// writeImage writes an image archive in the format of "docker save", with one layer that has one
// program in its root directory.
func writeImage(archive, name, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	base := filepath.Base(program)
	var layer bytes.Buffer
	if err := writeTar(&layer, file{base, 0o755, binary}); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/" + base}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeTar(f, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer.Bytes()},
		file{"manifest.json", 0o644, manifest}); err != nil {
		return err
	}
	return f.Close()
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

type file struct {
	name    string
	mode    int64
	content []byte
}

func writeTar(w io.Writer, files ...file) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return t.Close()
}
