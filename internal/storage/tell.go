package storage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/storage/plan"
)

// againAfter is when a trouble that lasts is told of once more: events are kept for an hour.
const againAfter = 15 * time.Minute

// telling is what was told of a volume, and when.
type telling struct {
	what string
	at   time.Time
}

// tell warns of a trouble, if it is news.
func (p *Provisioner) tell(name string, about runtime.Object, reason, message string) {
	if p.news(name, message) {
		p.events.Event(about, corev1.EventTypeWarning, reason, message)
	}
	p.queue.AddAfter(name, againAfter)
}

// news says whether something is to be told of a volume: it was told something else last, or this some time ago.
func (p *Provisioner) news(name, what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.told[name]
	if last.what == what && time.Since(last.at) < againAfter {
		return false
	}
	p.told[name] = telling{what, time.Now()}
	return true
}

// forget is for a volume that is no more, or with which all is well.
func (p *Provisioner) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.told, name)
}

// failed has a claim say why no volume is made for it. Events may be late or lost, and nobody can go by them.
func (p *Provisioner) failed(ctx context.Context, claim *corev1.PersistentVolumeClaim, why string) error {
	now, changed := plan.Failed(claim, why, metav1.Now())
	return p.write(ctx, now, changed)
}

// succeeded takes that back.
func (p *Provisioner) succeeded(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	now, changed := plan.Succeeded(claim)
	return p.write(ctx, now, changed)
}

func (p *Provisioner) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, changed bool) error {
	if !changed {
		return nil
	}
	_, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err = unlessGone(err); err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
