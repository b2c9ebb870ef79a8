package apiserver

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"monopod.dev/monopod/internal/apiserver/pki"
	"monopod.dev/monopod/internal/atomicfile"
)

// renewInterval is how often certificates are looked at while the server runs.
const renewInterval = 24 * time.Hour

// url is the API's address as clients on this host reach it.
func (s *Server) url() string {
	host := s.cfg.BindAddress
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port()))
}

// AdminConfig is a client configuration that may do everything.
func (s *Server) AdminConfig() *rest.Config { return s.clientConfig(s.pki.Admin) }

// ControllersConfig is the client configuration of the controllers.
func (s *Server) ControllersConfig() *rest.Config { return s.clientConfig(s.pki.Controllers) }

// Sign issues a certificate for a key of somebody else's, by a template, valid for the given time at most; it is PEM.
func (s *Server) Sign(template *x509.Certificate, key crypto.PublicKey, life time.Duration) ([]byte, error) {
	return s.pki.Sign(template, key, life)
}

// NodeConfig is the client configuration of the agent of the named node.
func (s *Server) NodeConfig(nodeName string) *rest.Config {
	pair := s.pki.Node
	if nodeName != s.cfg.NodeName {
		issued, err := s.pki.NodeClient(nodeName)
		if err != nil {
			// Without a certificate the client gets 401 for every request: say why here.
			s.cfg.Log.Error("no credentials for an agent", "node", nodeName, "error", err)
		}
		pair = issued
	}
	return s.clientConfig(pair)
}

// AgentServingFiles are the files with which the agent of this node serves HTTPS, and the authority of its clients.
func (s *Server) AgentServingFiles() (cert, key, clientCA string) {
	return s.pki.Agent.CertFile, s.pki.Agent.KeyFile, s.pki.CAFile
}

// clientConfig names files where there are files: client-go reads them again when they have changed.
func (s *Server) clientConfig(pair pki.Pair) *rest.Config {
	tls := rest.TLSClientConfig{CAData: s.pki.CA, CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	if pair.CertFile == "" {
		tls.CertData, tls.KeyData = pair.Cert, pair.Key
	}
	return &rest.Config{Host: s.url(), TLSClientConfig: tls}
}

// writeKubeconfig writes the administrator's kubeconfig, which holds all that a client needs.
func (s *Server) writeKubeconfig(admin pki.Pair) error {
	path := s.cfg.Kubeconfig
	if path == "" {
		return nil
	}
	const name = "monopod"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: s.url(), CertificateAuthorityData: s.pki.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: admin.Cert, ClientKeyData: admin.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := atomicfile.Write(path, raw, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// renewCertificates replaces certificates that come near their end while the server runs. The clients of this process
// read the files again by themselves.
func (s *Server) renewCertificates(ctx context.Context) error {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		renewed, err := s.renew()
		if err != nil {
			s.cfg.Log.Error("certificates could not be renewed; trying again tomorrow", "error", err)
		}
		if len(renewed) > 0 {
			s.cfg.Log.Info("certificates renewed; copies of the administrator's kubeconfig are to be replaced", "files", renewed)
		}
	}
}

func (s *Server) renew() (renewed []string, err error) {
	p, renewed, err := pki.Ensure(s.pkiConfig())
	if err != nil || len(renewed) == 0 {
		return nil, err
	}
	s.certificate.pair.Store(&p.Server)
	return renewed, s.writeKubeconfig(p.Admin)
}
