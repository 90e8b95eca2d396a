"""A real browser, without a window: opens a page, runs a script in it, reads it."""

import functools
import json
import re
import shutil
import subprocess

import pytest

REPORT = """
<pre id="seen"></pre>
<script>
const seen = {errors: []};
window.onerror = (message) => { seen.errors.push(String(message)); };
const pixel = (id, x, y) => {
  const canvas = document.getElementById(id), pen = canvas.getContext("2d");
  return [...pen.getImageData(x * canvas.width, y * canvas.height, 1, 1).data];
};
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key}));
const choose = (id, value) => {
  const box = document.getElementById(id);
  box.value = value; box.dispatchEvent(new Event("change"));
};
const said = (side) => document.getElementById("said" + side).textContent;
(async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  try { %s } catch (error) { seen.errors.push(String(error)); }
  document.getElementById("seen").textContent = JSON.stringify(seen);
})();
</script></body>
"""


@functools.cache
def chromium():
    """Find Chromium, or install Debian's; where neither works the test is skipped."""
    if not shutil.which("chromium") and shutil.which("apt-get"):
        for command in (("update",), ("install", "-y", "--no-install-recommends")):
            more = ("chromium",) if "install" in command else ()
            subprocess.run(
                ["apt-get", *command, *more], capture_output=True, timeout=400
            )
    return shutil.which("chromium")


def visit(page, folder, script, width=1000):
    """Open a copy of a page with a script at its end; return what the script saw."""
    if not chromium():
        pytest.skip("there is no Chromium on this machine")
    copy = folder / "visited.html"
    copy.write_text(page.read_text().replace("</body>", REPORT % script))
    asked = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        *("--virtual-time-budget=20000", f"--window-size={width},1200"),
        f"--user-data-dir={folder / 'profile'}",
    ]
    done = subprocess.run(
        [chromium(), *asked, copy.as_uri()], capture_output=True, timeout=120
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout.decode(), re.DOTALL)
    assert found and found[1], done.stderr.decode()[-2000:]
    return json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
