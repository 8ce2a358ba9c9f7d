package config

// TLS of the listener: files in PEM, each read anew when it changes.
type TLS struct {
	// Cert is the certificate, with those between it and its authority.
	Cert string `yaml:"cert" json:"cert,omitempty"`
	// Key is the certificate's private key.
	Key string `yaml:"key" json:"key,omitempty"`
	// ClientCA holds the authorities of clients: a client needs a certificate of one of
	// them, and a token besides. Defaults to none: clients need no certificate.
	ClientCA string `yaml:"client_ca" json:"client_ca,omitempty"`
}

// IsZero reports whether the listener speaks plain HTTP.
func (t TLS) IsZero() bool { return t == TLS{} }

func (t TLS) check(k *checker) {
	if !t.IsZero() && (t.Cert == "" || t.Key == "") {
		k.bad("tls", "TLS needs a certificate and its key", "write tls: {cert: /etc/redrive/cert.pem, key: /etc/redrive/key.pem}")
	}
}
