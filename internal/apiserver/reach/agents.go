package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NodeGetter reads Node objects.
type NodeGetter interface {
	Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error)
}

// Config says how to reach agents.
type Config struct {
	Nodes NodeGetter
	// CA is the authority (PEM) that has signed the agents' certificates.
	CA []byte
	// ClientCertFile and ClientKeyFile are the API server's credentials. They are read for each connection, so that
	// renewed ones are used.
	ClientCertFile, ClientKeyFile string
}

// Agents finds the agents of nodes.
type Agents struct {
	nodes     NodeGetter
	transport *http.Transport
}

// New makes Agents; nothing is connected before a request needs it.
func New(cfg Config) (*Agents, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cfg.CA) {
		return nil, errors.New("the certificate authority of the agents has no PEM certificate")
	}
	return &Agents{nodes: cfg.Nodes, transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(cfg.ClientCertFile, cfg.ClientKeyFile)
				if err != nil {
					return nil, fmt.Errorf("credentials of the API server for agents: %w", err)
				}
				return &pair, nil
			},
		},
		TLSHandshakeTimeout: 10 * time.Second,
		// Logs and streams are not worth to be kept: an idle connection costs a goroutine on both sides.
		DisableKeepAlives: true,
	}}, nil
}

// Agent returns the way to the agent of the named node. Its error is an API error (NotFound for a node that does not
// exist, ServiceUnavailable for one that has published no address) and is for the client to see.
func (a *Agents) Agent(ctx context.Context, nodeName string) (Agent, error) {
	obj, err := a.nodes.Get(ctx, nodeName, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		// The getter's own error would name the resource of the request.
		return Agent{}, apierrors.NewNotFound(corev1.Resource("nodes"), nodeName)
	}
	if err != nil {
		return Agent{}, err
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return Agent{}, apierrors.NewInternalError(fmt.Errorf("node %s: the store holds a %T", nodeName, obj))
	}
	host, err := address(node)
	if err != nil {
		return Agent{}, apierrors.NewServiceUnavailable(err.Error())
	}
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port == 0 {
		return Agent{}, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s has published no port of its agent (status.daemonEndpoints.kubeletEndpoint)", nodeName))
	}
	return Agent{Scheme: "https", Host: host, Port: strconv.Itoa(port), Transport: a.transport}, nil
}

// address chooses the node's address for the API server: an address before a name, which would have to be resolved.
func address(node *corev1.Node) (string, error) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind && a.Address != "" {
				return a.Address, nil
			}
		}
	}
	return "", fmt.Errorf("node %s has published no address (status.addresses)", node.Name)
}
