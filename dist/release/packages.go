package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// docs is the directory of the licenses of Debian packages in a root file system.
const docs = "usr/share/doc"

// copyrights are the files below docs of a root file system, and the targets of symbolic links.
type copyrights struct{ files, links map[string]string }

func readCopyrights(archive io.Reader) (copyrights, error) {
	c := copyrights{map[string]string{}, map[string]string{}}
	r := tar.NewReader(archive)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		name := path.Clean(header.Name)
		switch {
		case !strings.HasPrefix(name, docs+"/"):
		case header.Typeflag == tar.TypeSymlink:
			target := header.Linkname
			if !path.IsAbs(target) {
				target = path.Join(path.Dir(name), target)
			}
			c.links[name] = strings.TrimPrefix(path.Clean(target), "/")
		case header.Typeflag == tar.TypeReg && path.Base(name) == "copyright":
			text, err := io.ReadAll(r)
			if err != nil {
				return c, err
			}
			c.files[name] = string(text)
		}
	}
}

// of returns the copyright file of a package, through links of the file or of its directory.
func (c copyrights) of(pkg string) (string, bool) {
	dir := path.Join(docs, pkg)
	for range 5 { // a bound for circular links
		if text, ok := c.files[path.Join(dir, "copyright")]; ok {
			return text, true
		}
		if to, ok := c.links[path.Join(dir, "copyright")]; ok {
			dir = path.Dir(to)
		} else if to, ok := c.links[dir]; ok {
			dir = to
		} else {
			break
		}
	}
	return "", false
}

var (
	machineReadable = regexp.MustCompile(`(?im)^(format|format-specification):.*(dep-?5|copyright-format)`)
	licenseField    = regexp.MustCompile(`(?im)^license:[ \t]*(\S.*)$`)
	commonLicense   = regexp.MustCompile(`/usr/share/common-licenses/([A-Za-z]+(-[0-9.]*[0-9])?)`)
	gnuLicense      = regexp.MustCompile(`(?i)gnu\s+(lesser\s+|library\s+)?general\s+public\s+license`)
)

// debianLicenses returns the licenses in a Debian copyright file: the fields of the
// machine-readable format, otherwise the common licenses it refers to and those it quotes, or
// the GNU licenses that it mentions.
func debianLicenses(text string) []string {
	var names []string
	if machineReadable.MatchString(text) {
		for _, field := range licenseField.FindAllStringSubmatch(text, -1) {
			names = append(names, strings.TrimSpace(field[1]))
		}
	} else {
		for _, found := range commonLicense.FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
		names = append(names, identify(text)...)
	}
	for _, found := range gnuLicense.FindAllStringSubmatch(text, -1) {
		if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "GPL") }) {
			break // the licenses found so far are more exact
		}
		if found[1] != "" {
			names = append(names, "LGPL")
		} else {
			names = append(names, "GPL")
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// listPackages writes a line for each package; each line of list has a name and a version.
func listPackages(out io.Writer, list, root string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read list of packages: %w", err)
	}
	archive, err := os.Open(root)
	if err != nil {
		return fmt.Errorf("open root file system: %w", err)
	}
	defer archive.Close()
	found, err := readCopyrights(bufio.NewReaderSize(archive, 1<<20))
	if err != nil {
		return fmt.Errorf("read %s: %w", root, err)
	}
	var errs []error
	for line := range strings.Lines(string(text)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return fmt.Errorf("%s: %q is not a package and its version", list, line)
		}
		copyright, ok := found.of(name)
		names := debianLicenses(copyright)
		if !ok || len(names) == 0 {
			errs = append(errs, fmt.Errorf("%s: no license found in its copyright file", name))
			continue
		}
		if _, err := fmt.Fprintf(out, "%s\t%s\t%s\n", name, version, strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
