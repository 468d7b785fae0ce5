// The switch between light and dark; without scripts the page follows the system.
const root = document.documentElement;
const button = document.getElementById("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
button.hidden = false;
button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
systemDark.addEventListener("change", label);
if (["#dark", "#light"].includes(location.hash)) { root.dataset.theme = location.hash.slice(1); }
label();
