package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"aead.dev/minisign"
)

// sumsFile lists the checksums of the other files, as sha256sum -c reads them.
const sumsFile = "checksums.txt"

// Where the signing key is: the text of a secret key of minisign, and its password if it has one.
const (
	keyVariable      = "REDRIVE_SIGNING_KEY"
	passwordVariable = "REDRIVE_SIGNING_PASSWORD"
)

func (r *release) checksums() error {
	files, err := filepath.Glob(filepath.Join(r.out, "redrive*"))
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, path := range files { // Glob sorts them
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(b), filepath.Base(path))
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(lines.String()), 0o644)
}

// sign signs the checksums, and with them every file, so that `minisign -V` proves them.
func (r *release) sign() error {
	text := []byte(os.Getenv(keyVariable))
	if len(text) == 0 {
		fmt.Println("not signed:", keyVariable, "is not set")
		return nil
	}
	var key minisign.PrivateKey
	var err error
	if minisign.IsEncrypted(text) {
		key, err = minisign.DecryptKey(os.Getenv(passwordVariable), text)
	} else {
		err = key.UnmarshalText(text)
	}
	if err != nil {
		return fmt.Errorf("%s is not a secret key of minisign that %s opens: %w", keyVariable, passwordVariable, err)
	}
	f, err := os.Open(filepath.Join(r.out, sumsFile))
	if err != nil {
		return err
	}
	defer f.Close()
	in := minisign.NewReader(f)
	if _, err := io.Copy(io.Discard, in); err != nil {
		return err
	}
	signature := in.SignWithComments(key, "redrive "+r.version, "signature of the checksums of redrive "+r.version)
	return os.WriteFile(filepath.Join(r.out, sumsFile+".minisig"), signature, 0o644)
}
