// Package image writes container images without a registry: an archive in the
// format of "docker save", with one layer of given files.
//
// The same input gives the same bytes, so an image keeps its identity however
// often it is built.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image is the content of an archive.
type Image struct {
	// Names are full names with tags, at least one.
	Names []string
	// Entrypoint, Command and Env are the container's defaults.
	Entrypoint []string
	Command    []string
	Env        []string
	Files      []File
}

// File is one entry of the layer: a regular file with the content of Source,
// or of Text, or a symbolic link to Link, or a directory.
type File struct {
	// Path is absolute; directories above it are created.
	Path   string
	Source string
	Text   string
	Link   string
	Dir    bool
	Mode   int64
}

// Write writes the archive.
func Write(w io.Writer, img Image) error {
	layer, err := layer(img.Files)
	if err != nil {
		return fmt.Errorf("make layer of %s: %w", img.Names, err)
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": img.Entrypoint, "Cmd": img.Command, "Env": img.Env, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return fmt.Errorf("encode configuration of %s: %w", img.Names, err)
	}
	configSum := sha256.Sum256(config)
	configName := hex.EncodeToString(configSum[:]) + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": img.Names, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return fmt.Errorf("encode manifest of %s: %w", img.Names, err)
	}
	archive := tar.NewWriter(w)
	for _, entry := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {configName, config}, {"layer.tar", layer}} {
		header := &tar.Header{Name: entry.name, Mode: 0o644, Size: int64(len(entry.content)), Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
		if _, err := archive.Write(entry.content); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("finish archive: %w", err)
	}
	return nil
}

func layer(files []File) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	made := map[string]bool{"/": true, ".": true}
	for _, f := range files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path {
			return nil, fmt.Errorf("%q is not a clean absolute path", f.Path)
		}
		if err := parents(w, made, path.Dir(f.Path)); err != nil {
			return nil, err
		}
		if err := add(w, made, f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// Tree lists the content of a directory as the files of an image with that directory as its root.
func Tree(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || source == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := File{Path: strings.TrimPrefix(source, dir), Mode: int64(info.Mode().Perm())}
		switch {
		case entry.IsDir():
			f.Dir = true
			if info.Mode()&fs.ModeSticky != 0 {
				f.Mode |= 0o1000
			}
		case entry.Type().IsRegular():
			f.Source = source
		case entry.Type()&fs.ModeSymlink != 0:
			if f.Link, err = os.Readlink(source); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither a file nor a directory nor a link", source)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list files of an image: %w", err)
	}
	return files, nil
}

func parents(w *tar.Writer, made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := parents(w, made, path.Dir(dir)); err != nil {
		return err
	}
	return add(w, made, File{Path: dir, Dir: true, Mode: 0o755})
}

func add(w *tar.Writer, made map[string]bool, f File) error {
	header := &tar.Header{Name: f.Path[1:], Mode: f.Mode, Format: tar.FormatUSTAR}
	content := []byte(f.Text)
	switch {
	case f.Dir:
		if made[f.Path] {
			return nil
		}
		made[f.Path] = true
		header.Name += "/"
		header.Typeflag = tar.TypeDir
		content = nil
	case f.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.Link, 0o777
		content = nil
	case f.Source != "":
		var err error
		if content, err = os.ReadFile(f.Source); err != nil {
			return err
		}
	}
	header.Size = int64(len(content))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
