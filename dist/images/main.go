// Command images writes the image of ovnkube as an OCI archive, without a container
// engine: a layer with a root file system of Debian packages, and one with the files
// built from this repository.
//
// The same input gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// options define the content of the image.
type options struct {
	root     string // tar archive of the root file system
	files    string // directory with the files of the upper layer
	name     string // the image's name, with a tag
	labels   map[string]string
	created  time.Time // the date of all files of the upper layer, and of the image
	entry    string
	platform v1.Platform
}

func main() {
	o := options{labels: map[string]string{}, platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	output := flag.String("o", "", "the archive to write")
	flag.StringVar(&o.root, "root", "", "tar archive of the root file system")
	flag.StringVar(&o.files, "files", "", "directory whose files lie over the root file system")
	flag.StringVar(&o.name, "name", "ovnkube:latest", "name of the image, with a tag")
	flag.StringVar(&o.entry, "entrypoint", "/usr/bin/start", "program that a container runs")
	created := flag.Int64("created", 0, "seconds since 1970 that files and image are dated")
	flag.Func("label", "KEY=VALUE of a label; may be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not KEY=VALUE", text)
		}
		o.labels[key] = value
		return nil
	})
	flag.Parse()
	o.created = time.Unix(*created, 0).UTC()
	digest, err := run(o, *output)
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

// run writes the archive and returns the digest of the image's manifest.
func run(o options, output string) (string, error) {
	img, err := build(o)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", o.name, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("compute digest of %s: %w", o.name, err)
	}
	if err := save(img, o, output); err != nil {
		return "", fmt.Errorf("write %s: %w", output, err)
	}
	return digest.String(), nil
}

// build puts the layers together.
func build(o options) (v1.Image, error) {
	upper, err := layerOf(o.files, o.created)
	if err != nil {
		return nil, err
	}
	root, err := tarball.LayerFromFile(o.root, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.root, err)
	}
	created := v1.Time{Time: o.created}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img,
		mutate.Addendum{Layer: root, History: v1.History{Created: created, CreatedBy: "packages of Debian"}},
		mutate.Addendum{Layer: upper, History: v1.History{Created: created, CreatedBy: "ovnkube"}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.OS, file.Architecture = created, o.platform.OS, o.platform.Architecture
	file.Config = v1.Config{
		Entrypoint: []string{o.entry}, Labels: o.labels, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	return mutate.ConfigFile(img, file)
}

// layerOf returns a layer with the files of a directory. They belong to root, and have
// the given modification time.
func layerOf(dir string, created time.Time) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error { // in lexical order
		if err != nil || path == dir {
			return err
		}
		return add(w, strings.TrimPrefix(path, dir+"/"), path, entry, created)
	})
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", dir, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive %s: %w", dir, err)
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// add adds a file or a directory to an archive.
func add(w *tar.Writer, name, path string, entry fs.DirEntry, created time.Time) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: created, Format: tar.FormatPAX}
	switch {
	case entry.IsDir():
		header.Typeflag = tar.TypeDir
		header.Name += "/"
		return w.WriteHeader(header)
	case entry.Type().IsRegular():
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header.Size = int64(len(text))
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return fmt.Errorf("%s is neither a file nor a directory", path)
}

// reference returns the full name of an image, as containerd has it, and its tag.
func reference(image string) (name, tag string) {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		tag = image[i+1:]
	} else {
		image, tag = image+":latest", "latest"
	}
	host, _, within := strings.Cut(image, "/")
	switch {
	case !within:
		image = "docker.io/library/" + image
	case host != "localhost" && !strings.ContainsAny(host, ".:"):
		image = "docker.io/" + image
	}
	return image, tag
}

// save writes an OCI image layout as one archive.
func save(img v1.Image, o options, output string) error {
	dir, err := os.MkdirTemp(filepath.Dir(output), "layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The first annotation is for OCI tools, the second one for containerd.
	name, tag := reference(o.name)
	names := map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name}
	if err := target.AppendImage(img, layout.WithAnnotations(names), layout.WithPlatform(o.platform)); err != nil {
		return err
	}
	f, err := os.Create(output)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return add(w, strings.TrimPrefix(path, dir+"/"), path, entry, o.created)
	})
	if err == nil {
		err = w.Close()
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}
