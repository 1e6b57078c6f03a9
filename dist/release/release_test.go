package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary run as the command, for scripts that the tests run.
func TestMain(m *testing.M) {
	if os.Getenv("RELEASE_COMMAND") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const (
	mit = "Permission is hereby granted, free of\ncharge, to any person obtaining a copy of this software"
	bsd = "Redistributions in binary form must reproduce the above copyright notice."
)

func TestIdentify(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"Apache":       {"                                 Apache License\n                           Version 2.0, January 2004", "Apache-2.0"},
		"MIT":          {mit, "MIT"},
		"ISC":          {"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is hereby granted", "ISC"},
		"MPL":          {"Mozilla Public License Version 2.0", "MPL-2.0"},
		"two clauses":  {bsd, "BSD-2-Clause"},
		"three":        {bsd + "\n * Neither the name of Google Inc. nor", "BSD-3-Clause"},
		"other three":  {bsd + " Nor the names of its contributors may be used", "BSD-3-Clause"},
		"in a comment": {"// Permission is hereby granted, free\n// of charge, to any person obtaining a copy", "MIT"},
		"two licenses": {mit + "\n\nApache License, Version 2.0", "Apache-2.0 MIT"},
		"none":         {"All rights reserved.", ""},
	} {
		if got := strings.Join(identify(tc.text), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLicenses: the texts at the top of a module determine its licenses; all texts are passed on.
func TestLicenses(t *testing.T) {
	m := goModule{Path: "example.com/m", Version: "v1.0.0", Dir: write(t, map[string]string{
		"LICENSE": mit, "license.go": "package m", "NOTICE": "made by somebody", "third/LICENSE.txt": bsd, "testdata/COPYING": "other",
	})}
	names, err := licenses(m)
	if err != nil || strings.Join(names, " ") != "MIT" {
		t.Errorf("licenses %v, %v, want MIT", names, err)
	}
	files, err := texts(m)
	if err != nil || len(files) != 3 || files["third/LICENSE.txt"] != bsd || files["NOTICE"] == "" {
		t.Errorf("texts %v, %v", files, err)
	}
	m.Dir = write(t, map[string]string{"LICENSE": "All rights reserved.", "third/LICENSE": mit})
	if names, err := licenses(m); err == nil || !strings.Contains(err.Error(), "example.com/m v1.0.0") {
		t.Errorf("a license nobody knows: %v, %v, want an error with the module", names, err)
	}
}

// TestModules: the licenses of all modules that are linked into ovnkube are known.
func TestModules(t *testing.T) {
	var out bytes.Buffer
	if err := listModules(&out, "../../go-controller"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\ngithub.com/vishvananda/netlink\tv", "\ngolang.org/x/sys\tv", "\nk8s.io/client-go\tv"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want a line with %q:\n%s", want, out.String())
		}
	}
	if !strings.HasPrefix(out.String(), "std\tgo1.") || !strings.Contains(out.String(), "\tBSD-3-Clause\n") {
		t.Errorf("the standard library is not first:\n%s", out.String())
	}
	if strings.Contains(out.String(), "ovnkube") {
		t.Errorf("ovnkube is no module of others:\n%s", out.String())
	}
}

func TestDebianLicenses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"machine-readable": {"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: GPL-2+\n text\n\nFiles: b\nLicense: MIT\n\nLicense: GPL-2+\n", "GPL-2+, MIT"},
		"references":       {"see /usr/share/common-licenses/GPL-2, or\n/usr/share/common-licenses/LGPL-2.1.", "GPL-2, LGPL-2.1"},
		"quoted":           {mit, "MIT"},
		"named":            {"is the GNU Lesser General Public\nLicense, version 2.1", "LGPL"},
		"named twice":      {"the GNU General Public License: /usr/share/common-licenses/GPL-3", "GPL-3"},
		"nothing":          {"Copyright: somebody", ""},
	} {
		if got := strings.Join(debianLicenses(tc.text), ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// archive creates a root file system; content that starts with -> is the target of a symbolic link.
func archive(t *testing.T, files map[string]string) string {
	t.Helper()
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for name, text := range files {
		header := &tar.Header{Name: "./usr/share/doc/" + name, Typeflag: tar.TypeReg, Size: int64(len(text))}
		to, link := strings.CutPrefix(text, "->")
		if link {
			header.Typeflag, header.Linkname, header.Size, text = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(write(t, map[string]string{"root.tar": content.String()}), "root.tar")
}

func TestPackages(t *testing.T) {
	root := archive(t, map[string]string{
		"a/copyright": mit, "linked": "->a", "file/copyright": "->../a/copyright", "absolute": "->/usr/share/doc/linked",
		"circle": "->other", "other": "->circle", "silent/copyright": "Copyright: somebody",
	})
	list := filepath.Join(write(t, map[string]string{"list": "a 1:2-3\nlinked 2\nfile 3\nabsolute 4\n"}), "list")
	var out bytes.Buffer
	if err := listPackages(&out, list, root); err != nil {
		t.Error(err)
	}
	if want := "a\t1:2-3\tMIT\nlinked\t2\tMIT\nfile\t3\tMIT\nabsolute\t4\tMIT\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	for _, name := range []string{"circle", "silent", "absent"} {
		bad := filepath.Join(write(t, map[string]string{"list": "a 1\n" + name + " 2\n"}), "list")
		if err := listPackages(&bytes.Buffer{}, bad, root); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
}

func TestNotes(t *testing.T) {
	file := filepath.Join(write(t, map[string]string{"CHANGELOG.md": "# Log\n\n## [Unreleased]\n\n## [1.2.0] - 2026-03-01\n\n### Added\n\n- One.\n\n## [1.1.0]\n\n- Old.\n"}), "CHANGELOG.md")
	var out bytes.Buffer
	if err := notes(&out, "v1.2.0", file); err != nil || out.String() != "### Added\n\n- One.\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, version := range []string{"Unreleased", "v1.3.0", "v1.2"} { // empty, absent, another one
		if err := notes(&bytes.Buffer{}, version, file); err == nil {
			t.Errorf("notes of %s", version)
		}
	}
}

// TestChangeLog: the section of the next release is not empty.
func TestChangeLog(t *testing.T) {
	if err := notes(&bytes.Buffer{}, "Unreleased", "../../CHANGELOG.md"); err != nil {
		t.Error(err)
	}
}

// TestRender renders every overlay, with another image.
func TestRender(t *testing.T) {
	overlays, err := filepath.Glob("../overlays/*/kustomization.yaml")
	if err != nil || len(overlays) < 3 {
		t.Fatalf("%d overlays, %v", len(overlays), err)
	}
	for _, file := range overlays {
		dir := filepath.Dir(file)
		var plain, named bytes.Buffer
		if err := render(&plain, dir, ""); err != nil {
			t.Error(err)
			continue
		}
		if err := render(&named, dir, "example/ovnkube:v1"); err != nil {
			t.Error(err)
		}
		count := func(text string) int { return strings.Count(plain.String(), text) }
		for _, want := range []string{"kind: Deployment\n", "kind: DaemonSet\n", "kind: PodDisruptionBudget\n", "kind: ValidatingAdmissionPolicy\n", "kind: ConfigMap\n"} {
			if count(want) == 0 {
				t.Errorf("%s: no %s", dir, want)
			}
		}
		images := count(builtImage)
		if images == 0 || images != count(" image: ") || strings.Count(named.String(), " image: example/ovnkube:v1\n") != images || strings.Contains(named.String(), builtImage) {
			t.Errorf("%s: %d of %d images are ours, and were not all replaced", dir, images, count(" image: "))
		}
	}
}

func TestRun(t *testing.T) {
	for _, args := range [][]string{nil, {"nothing"}, {"render"}, {"packages", "a"}, {"render", "-unknown", "a"}, {"render", "absent"}} {
		if err := run(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
	var out bytes.Buffer
	if err := run([]string{"render", "-image", "other:1", "../overlays/local"}, &out); err != nil || !strings.Contains(out.String(), "image: other:1\n") {
		t.Errorf("render: %v", err)
	}
}
