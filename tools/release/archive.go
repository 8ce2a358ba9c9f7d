package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// packed are the files of an archive, by their names in it.
func (r *release) packed(t target) (map[string]string, error) {
	all := map[string]string{filepath.Base(r.binary(t)): r.binary(t)}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		all[name] = filepath.Join(r.root, name)
	}
	deploy := filepath.Join(r.root, "deploy")
	for _, pattern := range []string{"grafana/*.json", "prometheus/rules.yaml"} {
		files, err := filepath.Glob(filepath.Join(deploy, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			all[path.Join(path.Dir(pattern), filepath.Base(file))] = file
		}
	}
	for _, dir := range []string{"man", "completions"} {
		list, err := os.ReadDir(filepath.Join(r.stage, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			all[path.Join(dir, f.Name())] = filepath.Join(r.stage, dir, f.Name())
		}
	}
	return all, nil
}

// archive packs what a target's users get. Times, owners and order are the same everywhere.
func (r *release) archive(t target) error {
	all, err := r.packed(t)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	end, write := ".tar.gz", r.tar
	if t.os == "windows" {
		end, write = ".zip", r.zip
	}
	to := r.name(t, end)
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	top := strings.TrimSuffix(filepath.Base(to), end)
	return errors.Join(write(f, top, names, all), f.Close())
}

// mode is that of a file in an archive.
func mode(name string) fs.FileMode {
	if strings.HasPrefix(name, "redrive") {
		return 0o755
	}
	return 0o644
}

func (r *release) tar(w io.Writer, top string, names []string, from map[string]string) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, name := range names {
		b, err := os.ReadFile(from[name])
		if err == nil {
			err = tw.WriteHeader(&tar.Header{Name: path.Join(top, name), Mode: int64(mode(name)), Size: int64(len(b)), ModTime: r.time, Format: tar.FormatUSTAR})
		}
		if err == nil {
			_, err = tw.Write(b)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func (r *release) zip(w io.Writer, top string, names []string, from map[string]string) error {
	zw := zip.NewWriter(w)
	for _, name := range names {
		b, err := os.ReadFile(from[name])
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: path.Join(top, name), Method: zip.Deflate, Modified: r.time}
		h.SetMode(mode(name))
		f, err := zw.CreateHeader(h)
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			return err
		}
	}
	return zw.Close()
}
