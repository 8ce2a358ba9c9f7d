package main

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // formats of packages, by name
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// pack writes a package by deploy/package/nfpm.yaml.
func (r *release) pack(t target, format string) error {
	if err := r.compressPages(); err != nil {
		return err
	}
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	variables := map[string]string{"ROOT": root, "STAGE": r.stage, "ARCH": t.arch, "VERSION": r.packageVersion()}
	text, err := os.ReadFile(filepath.Join(root, "deploy/package/nfpm.yaml"))
	if err != nil {
		return err
	}
	c, err := nfpm.Parse(strings.NewReader(os.Expand(string(text), func(name string) string { return variables[name] })))
	if err != nil {
		return err
	}
	info, err := c.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	info.MTime = r.time
	for _, content := range info.Contents {
		if content.FileInfo != nil {
			content.FileInfo.MTime = r.time
		}
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	to, err := os.Create(r.name(t, "."+format))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, to), to.Close())
}

// compressPages packs the pages of the manual as distributions have them.
func (r *release) compressPages() error {
	dir := filepath.Join(r.stage, "man.gz")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(r.stage, "man", "*.1"))
	if err != nil {
		return err
	}
	for _, path := range pages {
		if err := compress(path, filepath.Join(dir, filepath.Base(path)+".gz"), r.time); err != nil {
			return err
		}
	}
	return nil
}

func compress(from, to string, at time.Time) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	zw, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err == nil {
		_, err = io.Copy(zw, in)
	}
	return errors.Join(err, zw.Close(), out.Close(), os.Chtimes(to, at, at))
}
