package tokens

import (
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Subject is who a token is for, and what it is bound to.
type Subject struct {
	Namespace string
	Account   Ref
	// Pod, Secret or Node is what it is bound to: one of them, or none. A token that is bound to a pod says in Node where the pod runs.
	Pod, Secret, Node *Ref
}

// Ref names an object. In the claims of a token both are strings; UID may be empty only for the node of a pod.
type Ref struct {
	Name string    `json:"name,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
}

// claims are those of a token: the registered ones, and those of Kubernetes: a secret's are others.
type claims struct {
	jwt.RegisteredClaims
	secretClaims
	Kubernetes private `json:"kubernetes.io,omitzero"`
}

// ofSecret says that a token is one that a secret holds.
func (c *claims) ofSecret() bool { return c.Issuer == secretIssuer }

type private struct {
	Namespace string `json:"namespace,omitempty"`
	Account   Ref    `json:"serviceaccount,omitzero"`
	Pod       *Ref   `json:"pod,omitempty"`
	Secret    *Ref   `json:"secret,omitempty"`
	Node      *Ref   `json:"node,omitempty"`
}

// newClaims are those of a token that is good from now on for a life.
func newClaims(issuer string, audiences []string, s Subject, now time.Time, life time.Duration) *claims {
	return &claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Subject: serviceaccount.MakeUsername(s.Namespace, s.Account.Name), Audience: audiences, ID: uuid.NewString(),
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
		},
		Kubernetes: private(s),
	}
}
