package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"
)

// The parts of an SPDX 2.3 document that are used.
type (
	document struct {
		Version      string        `json:"spdxVersion"`
		License      string        `json:"dataLicense"`
		ID           string        `json:"SPDXID"`
		Name         string        `json:"name"`
		Namespace    string        `json:"documentNamespace"`
		Creation     creation      `json:"creationInfo"`
		Packages     []component   `json:"packages"`
		Relationship []relatedness `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	component struct {
		ID        string      `json:"SPDXID"`
		Name      string      `json:"name"`
		Version   string      `json:"versionInfo,omitempty"`
		Download  string      `json:"downloadLocation"`
		Analyzed  bool        `json:"filesAnalyzed"`
		Concluded string      `json:"licenseConcluded"`
		Declared  string      `json:"licenseDeclared"`
		Copyright string      `json:"copyrightText"`
		Checksums []checksum  `json:"checksums,omitempty"`
		Refs      []reference `json:"externalRefs,omitempty"`
		Comment   string      `json:"comment,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	reference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relatedness struct {
		From string `json:"spdxElementId"`
		To   string `json:"relatedSpdxElement"`
		Type string `json:"relationshipType"`
	}
)

// contents writes what is in a binary: the modules that the linker noted in it, and Go.
func (r *release) contents(t target) error {
	info, err := buildinfo.ReadFile(r.binary(t))
	if err != nil {
		return err
	}
	b, err := os.ReadFile(r.binary(t))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	to := r.name(t, ".spdx.json")
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: filepath.Base(to),
		Namespace: fmt.Sprintf("https://github.com/redrive/redrive/spdx/%s/%x", filepath.Base(to), sum),
		Creation:  creation{r.time.Format(time.RFC3339), []string{"Tool: redrive-release"}},
	}
	product := newComponent(0, &debug.Module{Path: info.Main.Path, Version: r.version})
	product.Declared, product.Checksums = "Apache-2.0", []checksum{{"SHA256", hex.EncodeToString(sum[:])}}
	d.add(product, d.ID, "DESCRIBES")
	golang := newComponent(1, &debug.Module{Path: "stdlib", Version: info.GoVersion[len("go"):]})
	golang.Declared = "BSD-3-Clause"
	d.add(golang, product.ID, "STATIC_LINK")
	for i, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := newComponent(i+2, m)
		c.Comment = "go.sum: " + m.Sum
		d.add(c, product.ID, "STATIC_LINK")
	}
	text, err := json.MarshalIndent(&d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

func newComponent(n int, m *debug.Module) component {
	return component{
		ID: fmt.Sprintf("SPDXRef-Package-%d", n), Name: m.Path, Version: m.Version, Download: "NOASSERTION", Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION",
		Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
}

// add adds a component, as which something else has it.
func (d *document) add(c component, of, as string) {
	d.Packages = append(d.Packages, c)
	d.Relationship = append(d.Relationship, relatedness{of, c.ID, as})
}
