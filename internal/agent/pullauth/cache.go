package pullauth

import (
	"sync"
	"time"

	credentialprovider "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// cacheLimit is how many answers of one plugin are kept.
const cacheLimit = 1000

// cache holds answers of a plugin until they expire; the one that would expire first makes room.
type cache struct {
	limit int

	mu   sync.Mutex // guards held
	held map[string]cached
}

type cached struct {
	auths map[string]credentialprovider.AuthConfig
	until time.Time
}

// get returns the answer for an image, the one for the image itself before those for its registry and for all.
func (c *cache) get(keys map[credentialprovider.PluginCacheKeyType]string, now time.Time) (auths map[string]credentialprovider.AuthConfig, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []credentialprovider.PluginCacheKeyType{
		credentialprovider.ImagePluginCacheKeyType, credentialprovider.RegistryPluginCacheKeyType, credentialprovider.GlobalPluginCacheKeyType,
	} {
		if e, here := c.held[keys[kind]]; here && now.Before(e.until) {
			return e.auths, true
		}
	}
	return nil, false
}

// put keeps an answer for a time; 0 or less: not at all.
func (c *cache) put(key string, auths map[string]credentialprovider.AuthConfig, keep time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep <= 0 {
		delete(c.held, key)
		return
	}
	if c.held == nil {
		c.held = map[string]cached{}
	}
	if _, here := c.held[key]; !here && len(c.held) >= c.limit {
		c.makeRoom(now)
	}
	c.held[key] = cached{auths, now.Add(keep)}
}

// makeRoom drops what has expired, else what would expire first. c.mu is held.
func (c *cache) makeRoom(now time.Time) {
	first := ""
	for key, e := range c.held {
		if !now.Before(e.until) {
			delete(c.held, key)
		} else if first == "" || e.until.Before(c.held[first].until) {
			first = key
		}
	}
	if len(c.held) >= c.limit {
		delete(c.held, first)
	}
}
