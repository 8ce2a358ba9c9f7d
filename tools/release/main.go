// Command release makes what a release consists of, in a folder: a binary for each target in
// an archive with manual pages and completions, packages of Debian and RPM, a list of what is
// in each binary (SPDX), checksums, and their signature. Everything but the signature is the
// same bytes wherever the same commit is released.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// targets are those of a release. Only linux is run before it.
const targets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// release is what the steps share.
type release struct {
	root    string // of the repository
	out     string
	stage   string // what the steps hand on
	version string
	time    time.Time // of the commit
}

// target is one platform.
type target struct{ os, arch string }

func main() {
	r := &release{}
	list := flag.String("targets", targets, "platforms, separated by commas")
	flag.StringVar(&r.root, "root", "../..", "the repository")
	flag.StringVar(&r.out, "out", "../../dist", "the folder for the release, which is made anew")
	flag.StringVar(&r.version, "version", "", "such as v0.1.0")
	flag.Parse()
	if err := r.run(strings.Split(*list, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(platforms []string) error {
	if r.version == "" {
		return errors.New("-version is missing")
	}
	seconds, err := r.output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(n, 0).UTC()
	if r.stage, err = os.MkdirTemp("", "redrive-release-*"); err != nil {
		return err
	}
	defer os.RemoveAll(r.stage) //nolint:errcheck // a temporary folder
	if err := inOrder(func() error { return os.RemoveAll(r.out) }, func() error { return os.MkdirAll(r.out, 0o755) }); err != nil {
		return err
	}
	host := target{runtime.GOOS, runtime.GOARCH}
	if err := inOrder(func() error { return r.build(host) }, func() error { return r.pages(host) }); err != nil {
		return err
	}
	for _, platform := range platforms {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok {
			return fmt.Errorf("%q is not a platform such as linux/amd64", platform)
		}
		t := target{goos, arch}
		fmt.Println(platform)
		if t != host {
			if err := r.build(t); err != nil {
				return err
			}
		}
		if err := inOrder(func() error { return r.archive(t) }, func() error { return r.contents(t) }); err != nil {
			return err
		}
		if goos == "linux" {
			if err := inOrder(func() error { return r.pack(t, "deb") }, func() error { return r.pack(t, "rpm") }, func() error { return r.image(t) }); err != nil {
				return err
			}
		}
	}
	return inOrder(r.checksums, r.sign)
}

// inOrder does one step after the other, until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program in the repository and returns what it prints.
func (r *release) output(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir = r.root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &complaint)
	}
	return strings.TrimSpace(string(b)), nil
}

// binary is where the binary of a target is, before it is packed.
func (r *release) binary(t target) string {
	name := "redrive"
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.stage, t.os+"_"+t.arch, name)
}

// build builds a static binary that does not depend on where it was built. Git is not asked:
// a worktree and a clone would be stamped differently.
func (r *release) build(t target) error {
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.release="+r.version, "-o", r.binary(t), "./cmd/redrive")
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s/%s: %w", t.os, t.arch, err)
	}
	return nil
}

// pages lets the program write its manual and its completions.
func (r *release) pages(host target) error {
	program := r.binary(host)
	if _, err := r.output(program, "__man", filepath.Join(r.stage, "man")); err != nil {
		return err
	}
	dir := filepath.Join(r.stage, "completions")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for shell, name := range map[string]string{"bash": "redrive.bash", "zsh": "_redrive", "fish": "redrive.fish"} {
		text, err := r.output(program, "completion", shell)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// image makes the image for containers, where buildah is installed.
func (r *release) image(t target) error {
	if _, err := exec.LookPath("buildah"); err != nil {
		fmt.Println("no image: buildah is not installed")
		return nil //nolint:nilerr // an image is made where it can be
	}
	out, err := filepath.Abs(r.out)
	if err == nil {
		_, err = r.output("deploy/image/build", out, r.version, t.arch)
	}
	return err
}

// name is that of a file of the release.
func (r *release) name(t target, end string) string {
	return filepath.Join(r.out, fmt.Sprintf("redrive_%s_%s_%s%s", strings.TrimPrefix(r.version, "v"), t.os, t.arch, end))
}

var (
	tagged    = regexp.MustCompile(`^v?(\d+\.\d+\.\d+.*)$`)
	described = regexp.MustCompile(`-(\d+)-(g[0-9a-f]+)(?:-(dirty))?$`) // by git, commits after a tag
	unfit     = regexp.MustCompile(`[^0-9A-Za-z]+`)
)

// packageVersion is the version as packages order it: commits after a tag come after it, and
// what has no tag comes before all that have one.
func (r *release) packageVersion() string {
	version := r.version
	if m := described.FindStringSubmatch(version); m != nil {
		version = strings.TrimSuffix(version, m[0]) + "+" + strings.TrimSuffix(strings.Join(m[1:], "."), ".")
	}
	if m := tagged.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0-" + cmp.Or(strings.Trim(unfit.ReplaceAllString(version, "."), "."), "devel")
}
