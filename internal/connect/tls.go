package connect

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// tls returns nil where the connection is in the clear.
func (o *Options) tls() (*tls.Config, error) {
	if !o.TLS && o.TLSCA == "" && o.TLSCert == "" && o.TLSKey == "" {
		return nil, nil //nolint:nilnil // no TLS is a setting, not a failure
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLSCA != "" {
		pem, err := os.ReadFile(o.TLSCA)
		if err != nil {
			return nil, &OptionError{"--tls-ca", "the file cannot be read", err}
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &OptionError{"--tls-ca", o.TLSCA + " holds no PEM certificate", nil}
		}
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, &OptionError{"--tls-cert and --tls-key", "give both or none", nil}
	}
	if o.TLSCert != "" {
		cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return nil, &OptionError{"--tls-cert and --tls-key", "not a certificate and its key", err}
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}
