package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// asset is a file as it is served, compressed once.
type asset struct {
	media       string
	plain, gzip []byte
}

// assets are the files beside the pages. Their names have a hash of their content, so that
// a browser may keep them for ever.
type assets struct {
	byName map[string]asset
	hashed map[string]string // by the name in the source
}

var media = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// loadAssets reads what was built in; it cannot fail but by a mistake in the source.
func loadAssets() *assets {
	a := &assets{byName: make(map[string]asset), hashed: make(map[string]string)}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		b, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
		_, _ = z.Write(b)                                          // a buffer takes everything
		_ = z.Close()
		a.byName[name] = asset{media: media[ext], plain: b, gzip: packed.Bytes()}
		a.hashed[f.Name()] = name
	}
	return a
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	file, ok := a.byName[r.PathValue("name")]
	if !ok {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", file.media)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	body := file.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = file.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // whoever left does not need it
}
